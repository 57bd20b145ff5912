"""Environments whose observations are images: frames that are rendered or given, and stacks of them."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FrameStackObservation, TransformObservation
from PIL import Image

from utils import UserError

SHADOWS = 1024  # pixels each way
CHANNELS = (1, 3, 4)  # that a picture may have; more where it is a stack already


@dataclass(frozen=True)
class Pixels:
    """How observations become images.

    Attributes:
        rendered: whether an environment that gives vectors is rendered.
        size: of rendered frames, in pixels each way.
        stack: frames in an observation.
        camera_id: the camera of a suite's task; None is DrQ's (arXiv 2004.13649), 2 for quadruped and 0 for others.
    """

    rendered: bool = False
    size: int = 84
    stack: int = 3
    camera_id: int | None = None

    def camera_of(self, domain: str) -> int:
        """Of a domain of the suite."""
        return self.camera_id if self.camera_id is not None else 2 if domain == "quadruped" else 0


NO_PIXELS = Pixels()


class Rendered(gym.ObservationWrapper):
    """Observations are an environment's own pictures, made smaller: (3, size, size), uint8.

    Args:
        env: renders `rgb_array`.
        size: pixels each way.
    """

    def __init__(self, env: gym.Env, size: int):
        super().__init__(env)
        self._size = size
        self._frame: Any = None
        self.observation_space = gym.spaces.Box(0, 255, (3, size, size), np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        self._frame = frame = self.env.render()
        if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            raise ValueError(f"render gave {_said(frame)}, and no picture (height, width, 3) of bytes")
        small = Image.fromarray(frame).resize((self._size, self._size), Image.Resampling.BOX)
        return np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1))

    def render(self) -> Any:
        """The newest picture at its own size, which is not drawn again."""
        return self._frame


class Filmed(gym.Wrapper):
    """A suite's task from pixels that renders at another size than it is seen at.

    Args:
        size: pixels each way.
        camera_id: the camera that films.
    """

    def __init__(self, env: gym.Env, size: int, camera_id: int):
        super().__init__(env)
        self._kwargs = {"height": size, "width": size, "camera_id": camera_id}

    def render(self) -> Any:
        return self.env.unwrapped._env.physics.render(**self._kwargs)  # type: ignore[attr-defined]


def require_camera(env: gym.Env, camera_id: int, name: str) -> None:
    """Raises UserError for a camera that a suite's task does not have."""
    count = env.unwrapped._env.physics.model.ncam  # type: ignore[attr-defined]
    if camera_id >= count:
        env.close()
        raise UserError(
            f"camera_id={camera_id}: env={name} has {count} cameras, from 0 on; choose one of them, or auto"
        )


def render_quickly(env: gym.Env, largest: int, once: bool) -> None:
    """Has a suite's task render in about half of the time where a processor does it (docs/PERFORMANCE.md).

    Frames are drawn into a buffer of 640 x 480 pixels otherwise, and shadows into one of 2048 x 2048. No byte of a
    frame of 64 x 64 differs by more than 1.

    Args:
        largest: frame that it will render, in pixels each way.
        once: whether each pixel is drawn once, and not the mean of four: for videos, where that is hardly seen.
    """
    visual = env.unwrapped._env.physics.model.vis  # type: ignore[attr-defined]
    visual.quality.shadowsize = min(visual.quality.shadowsize, SHADOWS)
    visual.global_.offwidth = visual.global_.offheight = largest
    if once:
        visual.quality.offsamples = 0


def is_image(space: gym.Space) -> bool:
    """Whether observations are images: bytes in two dimensions or more."""
    return isinstance(space, gym.spaces.Box) and len(space.shape) >= 2 and space.dtype == np.uint8


def channels_first(env: gym.Env, name: str) -> gym.Env:
    """An environment that gives images, of any layout, with images (C, H, W); frames that it stacks become channels.

    Args:
        name: of the task, for the message.

    Raises:
        UserError: for images of which it cannot be said which dimension has the channels.
    """
    space = env.observation_space
    shape = space.shape or ()
    order = _order(shape)
    if order is None:
        raise UserError(
            f"env={name}: its observations are images {shape}; (height, width), (height, width, channels), "
            "(channels, height, width) and stacks of these, with 1, 3 or 4 channels, can be learned from"
        )
    height, width = (shape[axis] for axis in order[-2:])
    new = (int(np.prod(shape)) // (height * width), height, width)
    box = gym.spaces.Box(0, 255, new, np.uint8)
    return TransformObservation(env, lambda obs: np.asarray(obs, np.uint8).transpose(order).reshape(new), box)


def _order(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes in the order (frame,) channel, height, width, as far as there are such; None if that cannot be said."""
    if len(shape) == 2:
        return (0, 1)
    if len(shape) == 4:
        inner = _order(shape[1:])
        return None if inner is None else (0, *(axis + 1 for axis in inner))
    if len(shape) != 3:
        return None
    last = shape[2] in CHANNELS and shape[2] < shape[0]
    first = shape[0] < shape[2]
    return (2, 0, 1) if last else (0, 1, 2) if first else None


def stacked(env: gym.Env, count: int) -> gym.Env:
    """The newest `count` frames (C, H, W) as one (count * C, H, W), the oldest first; an episode's first fills it."""
    if count == 1:
        return env
    channels, *size = env.observation_space.shape or ()
    shape = (count * channels, *size)
    env = FrameStackObservation(env, count, padding_type="reset")
    return TransformObservation(env, lambda obs: obs.reshape(shape), gym.spaces.Box(0, 255, shape, np.uint8))


def _said(frame: Any) -> str:
    return f"{frame.dtype} of shape {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
