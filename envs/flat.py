"""Any Gymnasium environment as an agent sees it: vectors or images, actions in [-1, 1], counted steps."""

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

import dmc2gym
from envs.errors import Watched
from envs.pixels import NO_PIXELS, Pixels, Rendered, channels_first, is_image, stacked
from utils import UserError, one_line

EPISODE_LENGTH = 1000  # steps, for environments that set no limit of their own
Wrap = Callable[..., gym.Env]  # called with `env=`


def flat(
    env: gym.Env,
    name: str,
    action_repeat: int = 1,
    episode_length: int | None = EPISODE_LENGTH,
    pixels: Pixels = NO_PIXELS,
) -> gym.Env:
    """What an agent, and the training loop, can work with: flat float32 observations, or images (C, H, W).

    Args:
        env: with actions in a Box, and observations that are images or can be flattened.
        name: of the task, for messages.
        action_repeat: environment steps that one action is held for; `info["repeats"]` says how many were taken.
        episode_length: steps to an episode where the environment sets no limit; None is no limit.
        pixels: whether it is rendered, and how images are stacked.

    Raises:
        UserError: for other spaces.
    """
    if not isinstance(env.action_space, gym.spaces.Box):
        raise UserError(
            f"env={name}: its actions are {env.action_space}, and SAC here needs a Box; choose a continuous task"
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
        if episode_length is not None and not _is_limited(env):
            env = gym.wrappers.TimeLimit(env, episode_length)
        env = dmc2gym.ActionRepeat(env, action_repeat)
        if as_images:
            env = channels_first(env, name) if is_image(space) else Rendered(env, pixels.size)
            return Watched(dmc2gym.rescale_actions(stacked(env, pixels.stack)), name)
        flat_space = gym.spaces.flatten_space(space)
        box = gym.spaces.Box(-np.inf, np.inf, flat_space.shape, np.float32)
        env = gym.wrappers.TransformObservation(
            env, lambda obs: np.asarray(gym.spaces.flatten(space, obs), np.float32), box
        )
        return Watched(dmc2gym.rescale_actions(env), name)
    except ValueError as error:
        raise UserError(f"env={name}: {one_line(error)}") from error


def _is_limited(env: gym.Env) -> bool:
    """Whether it has a limit of its own: by its registration, or by a wrapper that somebody put around it."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return True
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            return True
        env = env.env
    return False


def wrapped(env: gym.Env, name: str, wrappers: Sequence[Wrap]) -> gym.Env:
    """An environment in wrappers, the first one innermost.

    Args:
        name: of the task, for messages.

    Raises:
        UserError: for one that cannot be put around it.
    """
    for wrapper in wrappers:
        said = f"env_wrappers: {_name(wrapper)} cannot be put around env={name}"
        try:
            env = wrapper(env=env)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{said} ({where(error)})") from error
        if not isinstance(env, gym.Env):
            raise UserError(f"{said} (it makes {type(env).__name__}, and no environment)")
    return env


def _name(wrapper: Any) -> str:
    while isinstance(wrapper, partial):
        wrapper = wrapper.func
    return str(getattr(wrapper, "__qualname__", wrapper))


def where(error: Exception) -> str:
    """What somebody's code raised, and where, in one line."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.filename}:{place.lineno}: {one_line(error)}"
