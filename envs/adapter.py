"""Adapts any Gymnasium environment to what agents take: vectors or images, scaled or counted actions, counted steps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

import dmc2gym
from envs.episodes import AUTO_INFO_KEYS, EpisodeInfo
from envs.observations import NO_PIXELS, Keys, Pixels, observe
from settings.env_ids import EPISODE_LENGTH
from utils import UserError, one_line

Wrap = Callable[..., Any]  # called with `env=`


def adapt(
    env: gym.Env,
    name: str,
    action_repeat: int = 1,
    episode_length: int | None = EPISODE_LENGTH,
    pixels: Pixels = NO_PIXELS,
    info_keys: Mapping[str, str] = AUTO_INFO_KEYS,
    keys: Keys = (),
) -> gym.Env:
    """Wraps an environment so that an observation is one array (settings.obs_spec), and it takes a policy's actions.

    A policy's actions are flat numbers in [-1, 1], or one integer from 0 (see dmc2gym.wrappers.ActionMap).

    Args:
        action_repeat: steps for which each action is held; `info["repeats"]` is how many were taken.
        episode_length: steps per episode if the environment sets no limit; None is no limit.
        keys: keys and widths of observations that were a dictionary before.

    Raises:
        UserError: for spaces other than a Box or a Discrete of actions and observations that can be flattened.
    """
    if not isinstance(env.action_space, gym.spaces.Box | gym.spaces.Discrete):
        raise UserError(f"env={name}: its actions are {env.action_space}, and agents here need a Box or a Discrete")
    if not (env.observation_space.is_np_flattenable or pixels.rendered):
        raise UserError(f"env={name}: its observations, {env.observation_space}, cannot be flattened into a vector")
    if episode_length is not None and not _has_time_limit(env):
        env = gym.wrappers.TimeLimit(env, episode_length)
    env = dmc2gym.ActionRepeat(EpisodeInfo(env, info_keys), action_repeat)
    try:
        return dmc2gym.rescale_actions(observe(env, name, pixels, keys))
    except ValueError as error:
        raise UserError(f"env={name}: {one_line(error)}") from error


def _has_time_limit(env: gym.Env) -> bool:
    """Returns whether the environment's registration or one of its wrappers limits its episodes."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return True
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            return True
        env = env.env
    return False


class BoundedActions(gym.Wrapper):
    """Sets the bounds that an environment's actions lack: b for -b to b, or one for each component of an action."""

    def __init__(self, env: gym.Env, bounds: float | Sequence[float]):
        super().__init__(env)
        space = env.action_space
        assert isinstance(space, gym.spaces.Box)
        limits = np.broadcast_to(bounds if np.size(bounds) == 1 else np.reshape(bounds, space.shape), space.shape)
        low = np.where(space.low <= -dmc2gym.UNBOUNDED, -limits, space.low)
        high = np.where(space.high >= dmc2gym.UNBOUNDED, limits, space.high)
        self.action_space = gym.spaces.Box(low, high, dtype=space.dtype)


def wrap(env: Any, wrappers: Sequence[Wrap]) -> Any:
    """Puts the user's wrappers around an environment, the first one innermost."""
    for wrapper in wrappers:
        env = wrapper(env=env)
    return env
