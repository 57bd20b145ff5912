"""Observations of any Gymnasium environment as one array: a vector, an image, or both; stacked, and in groups."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TransformObservation
from PIL import Image

from settings.obs_spec import ObsSpec
from utils import UserError

CHANNELS = (1, 3, 4)  # possible numbers of channels in one frame; a stack of frames has more
IMAGE_STACK = 3  # the default for images
Groups = Mapping[Any, Sequence[str]]  # by `actor` and `critic`
Keys = Sequence[tuple[str, int]]  # keys of a dictionary of observations, and their widths
Frame = tuple[np.ndarray | None, np.ndarray | None]  # an image (C, H, W) and a vector


@dataclass(frozen=True)
class ObsOptions:
    """Configures how observations are made."""

    rendered: bool = False  # whether an environment without images of its own is rendered instead
    size: int = 84  # height and width of rendered frames, in pixels
    stack: int | None = None  # frames per observation; None is 3 with images and 1 without
    camera_id: int | None = None  # of a suite task; None is DrQ's (arXiv 2004.13649): 2 for quadruped, else 0
    groups: Groups | None = None  # keys that each sees; None shows all to both

    def camera_of(self, domain: str) -> int:
        return self.camera_id if self.camera_id is not None else 2 if domain == "quadruped" else 0


PLAIN_OBS = ObsOptions()


class ObsSpace(gym.spaces.Box):
    """The space of observations with images, stacked frames or groups, whose parts `obs_spec` describes.

    `keys` are the environment's in the actor's `image` and `vector`; "" if observations are no dictionary.
    """

    def __init__(self, obs_spec: ObsSpec, keys: dict[str, list[str]]):
        self.obs_spec, self.keys = obs_spec, keys
        low, high = (0, 255) if obs_spec.image else (-np.inf, np.inf)
        super().__init__(low, high, obs_spec.shape, obs_spec.dtype)


class Observed(gym.Wrapper):
    """Returns observations in the layout of an ObsSpec, from frames that `frame_of` makes of the environment's own."""

    def __init__(self, env: gym.Env, space: ObsSpace, frame_of: Callable[[Any], Frame]):
        super().__init__(env)
        self._spec, self._frame_of = space.obs_spec, frame_of
        self._frames: deque[Frame] = deque(maxlen=space.obs_spec.frame_stack)
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._frames.extend([self._frame_of(obs)] * self._spec.frame_stack)
        return self._stack(), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._frames.append(self._frame_of(obs))
        return self._stack(), reward, terminated, truncated, info

    def _stack(self) -> np.ndarray:
        images, vectors = zip(*self._frames, strict=True)
        if not self._spec.vector_dim:
            return np.concatenate(images)
        vector = np.stack(vectors, axis=1).reshape(-1)
        if not self._spec.image:
            return vector
        if not np.isfinite(vector).all():  # checked here, as packed bytes do not show it
            raise ValueError("an observation beside an image is not finite")
        return self._spec.pack(np.concatenate(images), vector)


def observe(env: gym.Env, name: str, pixels: ObsOptions, keys: Keys = ()) -> gym.Env:
    """Wraps an environment so that observations are one array; `keys` are those of a vector that was a dictionary."""
    if pixels.rendered and not any(_is_image(leaf) for _, leaf in list_leaves(env.observation_space)):
        env = RenderedObservation(env, pixels.size)
    space = env.observation_space
    leaves = list(list_leaves(space))
    images = [(path, leaf) for path, leaf in leaves if _is_image(leaf)]
    vectors = [(path, leaf) for path, leaf in leaves if not _is_image(leaf)]
    if not images and pixels.stack in (None, 1) and pixels.groups is None:
        box = gym.spaces.Box(-np.inf, np.inf, gym.spaces.flatten_space(space).shape, np.float32)
        return TransformObservation(env, lambda obs: np.asarray(gym.spaces.flatten(space, obs), np.float32), box)
    widths = [(_join(path), gym.spaces.flatdim(leaf)) for path, leaf in vectors]
    columns, vector_keys = np.arange(sum(width for _, width in widths)), [key for key, _ in widths]
    bounds: tuple[int, int] | None = None
    if pixels.groups is not None:
        is_same = sum(width for _, width in keys) == len(columns)  # no wrapper has changed the vector
        named = widths if any(path for path, _ in leaves) else keys if is_same else ()
        images = _choose_images(images, named, pixels.groups, name)
        columns, bounds, vector_keys = _group_columns(named, pixels.groups)
    stack = pixels.stack or (IMAGE_STACK if images else 1)
    groups = None if bounds is None else (stack * bounds[0], stack * bounds[1])
    orders = [_order_axes(leaf, name) for _, leaf in images]
    shapes = {tuple(leaf.shape[axis] for axis in order[-2:]) for (_, leaf), order in zip(images, orders, strict=True)}
    if len(shapes) > 1:
        raise UserError(f"env={name}: its images have unlike heights and widths, {shapes}, which cannot be stacked")

    def frame_of(obs: Any) -> Frame:
        parts = [reduce(getitem, path, obs) for path, _ in images]
        planes = [np.transpose(part, order) for part, order in zip(parts, orders, strict=True)]
        image = np.concatenate([each.reshape(-1, *each.shape[-2:]) for each in planes]) if images else None
        if not len(columns):
            return image, None
        flat = [np.asarray(gym.spaces.flatten(leaf, reduce(getitem, path, obs)), np.float32) for path, leaf in vectors]
        return image, np.concatenate(flat)[columns]

    image = None
    for height, width in shapes:
        image = stack * sum(int(np.prod(leaf.shape)) for _, leaf in images) // (height * width), height, width
    keys_of_parts = {"image": [_join(path) for path, _ in images], "vector": vector_keys}
    return Observed(env, ObsSpace(ObsSpec(image, stack * len(columns), stack, groups), keys_of_parts), frame_of)


def _is_image(space: gym.Space[Any]) -> bool:
    return isinstance(space, gym.spaces.Box) and len(space.shape) >= 2 and space.dtype == np.uint8


def list_leaves(space: gym.Space[Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields the spaces inside dictionaries and tuples, in `flatten`'s order, with their paths of keys and indices."""
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        for key, child in space.items() if isinstance(space, gym.spaces.Dict) else enumerate(space):
            yield from list_leaves(child, (*path, key))
    else:
        yield path, space


def _join(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def _is_in(key: str, group: Sequence[str]) -> bool:
    return any(key == named or key.startswith(f"{named}.") for named in group)


def _choose_images(images: list[Any], keys: Keys, groups: Groups, name: str) -> list[Any]:
    """Returns the images that the groups name. Raises UserError for groups that do not fit the environment."""
    known = [key for key, _ in keys] + [_join(path) for path, _ in images]
    for group in ("actor", "critic"):
        wrong = [key for key in groups.get(group, ()) if not any(_is_in(one, [key]) for one in known)]
        if wrong or not groups.get(group):
            raise UserError(f"obs_groups.{group}={wrong or '[]'}: the keys of env={name} are: {', '.join(known)}")
    chosen = [image for image in images if _is_in(_join(image[0]), groups["actor"])]
    if chosen != [image for image in images if _is_in(_join(image[0]), groups["critic"])]:
        raise UserError("obs_groups: actor and critic share convolutions, so an image belongs into both, or into none")
    return chosen


def _group_columns(keys: Keys, groups: Groups) -> tuple[np.ndarray, tuple[int, int] | None, list[str]]:
    """Returns a frame's columns, the actor's alone first, the critic's alone last; its ObsSpec.groups; and the actor's
    keys in this order."""
    parts: dict[tuple[bool, bool], list[int]] = {(True, False): [], (True, True): [], (False, True): []}
    start = 0
    for key, width in keys:
        in_groups = _is_in(key, groups["actor"]), _is_in(key, groups["critic"])
        parts.get(in_groups, []).extend(range(start, start + width))
        start += width
    of_actor, of_both, of_critic = parts.values()
    bounds = (len(of_actor + of_both), len(of_actor)) if of_actor or of_critic else None
    actors_keys = [key for key, _ in keys if _is_in(key, groups["actor"])]
    actors_keys.sort(key=lambda key: _is_in(key, groups["critic"]))
    return np.array([*of_actor, *of_both, *of_critic], int), bounds, actors_keys


class RenderedObservation(gym.ObservationWrapper):
    """Replaces observations by the environment's rendered frames, scaled down to (3, size, size), uint8."""

    def __init__(self, env: gym.Env, size: int):
        super().__init__(env)
        self._size = size
        self._frame: Any = None
        self.observation_space = gym.spaces.Box(0, 255, (3, size, size), np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        self._frame = self.env.render()
        small = Image.fromarray(self._frame).resize((self._size, self._size), Image.Resampling.BOX)
        return np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1))

    def render(self) -> Any:
        """Returns the newest frame in its original size, without rendering again."""
        return self._frame


def _order_axes(space: gym.spaces.Box, name: str) -> tuple[int, ...]:
    """Returns the axes of images of any layout in the order (frame,) (channel,) height, width."""
    shape, axes = space.shape, tuple(range(len(space.shape)))
    if len(shape) == 2:
        return axes
    *frame, first, second, last = axes
    if len(frame) < 2 and shape[last] in CHANNELS and shape[last] < shape[first]:
        return (*frame, last, first, second)
    if len(frame) < 2 and shape[first] < shape[last]:
        return axes
    raise UserError(f"env={name}: its images {shape} must have 1, 3 or 4 channels as their first or last dimension")
