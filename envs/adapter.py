"""Adapts any Gymnasium environment to what agents take: vectors or images, scaled or counted actions, counted steps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

import dmc2gym
from envs.episodes import AUTO_INFO_KEYS, EpisodeInfo
from envs.errors import FAULTS, ReportErrors, error_with_place, exit_reported
from envs.observations import NO_PIXELS, Keys, Pixels, observe
from settings.env_ids import EPISODE_LENGTH
from utils import UserError, one_line, unwrapped

Wrap = Callable[..., gym.Env]  # called with `env=`


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

    A policy's actions are flat numbers in [-1, 1], or one integer from 0 (see dmc2gym.wrappers.OwnActions).

    Args:
        env: has a Box or a Discrete of actions, and observations that are images or can be flattened.
        name: the task, for messages.
        action_repeat: steps for which each action is held; `info["repeats"]` is how many were taken.
        episode_length: steps per episode if the environment sets no limit; None is no limit.
        pixels: how observations are made.
        info_keys: as for EpisodeInfo.
        keys: keys and widths of observations that were a dictionary before.

    Raises:
        UserError: for unsupported spaces.
    """
    for needed in ("action_space", "observation_space"):
        if not hasattr(env, needed):
            raise UserError(f"env={name}: it has no {needed}")
    if not isinstance(env.action_space, gym.spaces.Box | gym.spaces.Discrete):
        raise UserError(
            f"env={name}: its actions are {env.action_space}, and agents here need a Box or a Discrete; a wrapper of "
            "your own can number their combinations"
        )
    space = env.observation_space
    if not isinstance(space, gym.spaces.Space):
        raise UserError(f"env={name}: its observation_space is {space}, and no space of Gymnasium's")
    if not (space.is_np_flattenable or pixels.rendered):
        raise UserError(f"env={name}: its observations, {space}, cannot be flattened into a vector")
    try:
        if episode_length is not None and not _has_time_limit(env):
            env = gym.wrappers.TimeLimit(env, episode_length)
        env = dmc2gym.ActionRepeat(EpisodeInfo(env, info_keys), action_repeat)
        env = observe(env, name, pixels, keys)
        return ReportErrors(dmc2gym.rescale_actions(env), name)
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
    """Sets the bounds that an environment's actions lack.

    Args:
        bounds: b for -b to b, or one for each component of an action.

    Raises:
        UserError: if the number of bounds does not fit the actions, or no bound is missing.
    """

    def __init__(self, env: gym.Env, bounds: float | Sequence[float]):
        super().__init__(env)
        space, given = env.action_space, np.array(bounds)
        shape = space.shape or ()
        if not isinstance(space, gym.spaces.Box) or given.size not in (1, int(np.prod(shape))):
            raise UserError(
                f"action_bounds={bounds}: one number, or as many as the actions have: {one_line(str(space))}"
            )
        limits = np.broadcast_to(given if given.size == 1 else given.reshape(shape), shape)
        low = np.where(space.low <= -dmc2gym.UNBOUNDED, -limits, space.low)
        high = np.where(space.high >= dmc2gym.UNBOUNDED, limits, space.high)
        if np.array_equal(low, space.low) and np.array_equal(high, space.high):
            raise UserError(f"action_bounds={bounds}: the environment sets all bounds itself: {one_line(str(space))}")
        self.action_space = gym.spaces.Box(low, high, dtype=space.dtype)


def wrap(env: Any, name: str, wrappers: Sequence[Wrap], kind: type = gym.Env) -> Any:
    """Applies the user's wrappers to an environment, the first one innermost.

    Args:
        name: the task, for messages.
        kind: the class of which each wrapper has to return an instance.

    Raises:
        UserError: if a wrapper raises an exception, or returns no environment.
    """
    for wrapper in wrappers:
        failure = f"env_wrappers: {_class_name(wrapper)} cannot be put around env={name}"
        try:
            with exit_reported():
                env = wrapper(env=env)
                if isinstance(env, gym.Wrapper):
                    _ = env.action_space, env.observation_space  # without super().__init__(env) it has none
        except UserError:
            raise
        except FAULTS as error:
            raise UserError(f"{failure} ({error_with_place(error)})") from error
        if not isinstance(env, kind):
            raise UserError(f"{failure} (it makes {type(env).__name__}, and no environment)")
    return env


def _class_name(wrapper: Any) -> str:
    called, _ = unwrapped(wrapper)
    return str(getattr(called, "__qualname__", called))
