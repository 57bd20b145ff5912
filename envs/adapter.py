"""Adapts any Gymnasium environment to what agents take: vectors or images, scaled or counted actions, counted steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FrameStackObservation, TransformObservation
from PIL import Image

import dmc2gym
from envs.episodes import AUTO_INFO_KEYS, EpisodeInfo
from envs.errors import FAULTS, ReportErrors, error_with_place, exit_reported
from utils import UserError, one_line

EPISODE_LENGTH = 1000  # steps, for environments without a limit of their own
CHANNELS = (1, 3, 4)  # possible numbers of channels in one frame; a stack of frames has more
Wrap = Callable[..., gym.Env]  # called with `env=`


@dataclass(frozen=True)
class Pixels:
    """How observations become images.

    Attributes:
        rendered: whether an environment with vector observations is rendered instead.
        size: height and width of rendered frames, in pixels.
        stack: frames per observation.
        camera_id: the camera of a suite task; None is DrQ's (arXiv 2004.13649): 2 for quadruped, else 0.
    """

    rendered: bool = False
    size: int = 84
    stack: int = 3
    camera_id: int | None = None

    def camera_of(self, domain: str) -> int:
        """Returns the camera for a domain of the suite."""
        return self.camera_id if self.camera_id is not None else 2 if domain == "quadruped" else 0


NO_PIXELS = Pixels()


def adapt(
    env: gym.Env,
    name: str,
    action_repeat: int = 1,
    episode_length: int | None = EPISODE_LENGTH,
    pixels: Pixels = NO_PIXELS,
    info_keys: Mapping[str, str] = AUTO_INFO_KEYS,
) -> gym.Env:
    """Wraps an environment so that it has flat float32 observations or uint8 images (C, H, W), and a policy's actions.

    These are flat numbers in [-1, 1], or one integer from 0 (see dmc2gym.wrappers.OwnActions).

    Args:
        env: its actions are a Box or a Discrete; its observations are images or can be flattened.
        name: the task, for messages.
        action_repeat: steps for which each action is held; `info["repeats"]` is how many were taken.
        episode_length: steps per episode if the environment sets no limit; None is no limit.
        pixels: whether the environment is rendered, and how images are stacked.
        info_keys: as for EpisodeInfo.

    Raises:
        UserError: for other spaces.
    """
    if not isinstance(env.action_space, gym.spaces.Box | gym.spaces.Discrete):
        raise UserError(
            f"env={name}: its actions are {env.action_space}, and agents here need a Box or a Discrete; a wrapper of "
            "your own can number their combinations"
        )
    space = env.observation_space
    as_images = is_image(space) or pixels.rendered
    if isinstance(space, gym.spaces.Dict) and any(map(is_image, space.values())) and not as_images:
        raise UserError(
            f"env={name}: its observations are images beside vectors ({', '.join(space)}); a wrapper of your own "
            "that gives one of them can be learned from"
        )
    if not as_images and not space.is_np_flattenable:
        raise UserError(f"env={name}: its observations, {space}, cannot be flattened into a vector")
    try:
        if episode_length is not None and not _has_time_limit(env):
            env = gym.wrappers.TimeLimit(env, episode_length)
        env = dmc2gym.ActionRepeat(EpisodeInfo(env, info_keys), action_repeat)
        if as_images:
            env = _channels_first(env, name) if is_image(space) else RenderedObservation(env, pixels.size)
            env = stack_frames(env, pixels.stack)
        else:
            box = gym.spaces.Box(-np.inf, np.inf, gym.spaces.flatten_space(space).shape, np.float32)
            env = TransformObservation(env, lambda obs: np.asarray(gym.spaces.flatten(space, obs), np.float32), box)
        return ReportErrors(dmc2gym.rescale_actions(env), name)
    except ValueError as error:
        raise UserError(f"env={name}: {one_line(error)}") from error


def _has_time_limit(env: gym.Env) -> bool:
    """Whether the environment's registration or one of its wrappers limits its episodes."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return True
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            return True
        env = env.env
    return False


def wrap(env: Any, name: str, wrappers: Sequence[Wrap], kind: type = gym.Env) -> Any:
    """Puts the user's wrappers around an environment, the first one innermost.

    Args:
        name: the task, for messages.
        kind: what each of them has to make.

    Raises:
        UserError: if a wrapper raises an exception, or returns no environment.
    """
    for wrapper in wrappers:
        failure = f"env_wrappers: {_class_name(wrapper)} cannot be put around env={name}"
        try:
            with exit_reported():
                env = wrapper(env=env)
        except UserError:
            raise
        except FAULTS as error:
            raise UserError(f"{failure} ({error_with_place(error)})") from error
        if not isinstance(env, kind):
            raise UserError(f"{failure} (it makes {type(env).__name__}, and no environment)")
    return env


def _class_name(wrapper: Any) -> str:
    while isinstance(wrapper, partial):
        wrapper = wrapper.func
    return str(getattr(wrapper, "__qualname__", wrapper))


class RenderedObservation(gym.ObservationWrapper):
    """Replaces observations by the environment's rendered frames, scaled down to (3, size, size), uint8.

    Args:
        env: an environment that renders `rgb_array`.
        size: height and width, in pixels.
    """

    def __init__(self, env: gym.Env, size: int):
        super().__init__(env)
        self._size = size
        self._frame: Any = None
        self.observation_space = gym.spaces.Box(0, 255, (3, size, size), np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        frame: Any = self.env.render()
        self._frame = frame
        if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            is_array = isinstance(frame, np.ndarray)
            returned = f"{frame.dtype} of shape {frame.shape}" if is_array else type(frame).__name__
            raise ValueError(f"render gave {returned}, and no picture (height, width, 3) of bytes")
        small = Image.fromarray(frame).resize((self._size, self._size), Image.Resampling.BOX)
        return np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1))

    def render(self) -> Any:
        """Returns the newest frame in its original size, without rendering again."""
        return self._frame


def is_image(space: gym.Space[Any]) -> bool:
    """Whether observations are images: uint8 in two or more dimensions."""
    return isinstance(space, gym.spaces.Box) and len(space.shape) >= 2 and space.dtype == np.uint8


def _channels_first(env: gym.Env, name: str) -> gym.Env:
    """Transposes images of any layout to (C, H, W); the frames of a stack become channels.

    Raises:
        UserError: if the shape does not tell which dimension holds the channels.
    """
    shape = env.observation_space.shape or ()
    order = _axes_order(shape)
    if order is None:
        raise UserError(
            f"env={name}: its observations are images {shape}; (height, width), (height, width, channels), "
            "(channels, height, width) and stacks of these, with 1, 3 or 4 channels, can be learned from"
        )
    height, width = (shape[axis] for axis in order[-2:])
    chw = (int(np.prod(shape)) // (height * width), height, width)
    box = gym.spaces.Box(0, 255, chw, np.uint8)
    return TransformObservation(env, lambda obs: np.asarray(obs, np.uint8).transpose(order).reshape(chw), box)


def _axes_order(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes in the order (frame,) (channel,) height, width; None if the shape does not tell."""
    if len(shape) == 2:
        return (0, 1)
    if len(shape) == 4:
        order = _axes_order(shape[1:])
        return None if order is None else (0, *(axis + 1 for axis in order))
    if len(shape) != 3:
        return None
    if shape[2] in CHANNELS and shape[2] < shape[0]:
        return (2, 0, 1)
    return (0, 1, 2) if shape[0] < shape[2] else None


def stack_frames(env: gym.Env, count: int) -> gym.Env:
    """Stacks the newest `count` frames (C, H, W) to (count * C, H, W), the oldest first; a reset repeats its frame."""
    if count == 1:
        return env
    channels, *size = env.observation_space.shape or ()
    shape = (count * channels, *size)
    env = FrameStackObservation(env, count, padding_type="reset")
    return TransformObservation(env, lambda obs: obs.reshape(shape), gym.spaces.Box(0, 255, shape, np.uint8))
