"""Wrappers for any Gymnasium environment: actions held for several steps, and actions in [-1, 1]."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TransformAction

STATE = "internal_state"  # key of `info`: the physics state before the action
UNBOUNDED = 1e6  # larger bounds count as none: `lqr` has 1e10, others infinity


class ActionRepeat(gym.Wrapper):
    """Holds each action for `repeat` steps and sums their rewards; stops when the episode ends.

    `info` is the last step's, but for `internal_state`, the state before the action, which is the first step's.
    `info["repeats"]` is the number of steps taken, including those of another ActionRepeat inside.
    """

    def __init__(self, env: gym.Env, repeat: int):
        if repeat < 1:
            raise ValueError(f"an action is held for 1 step or more, not {repeat}")
        super().__init__(env)
        self.repeat = repeat

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total, steps, before = 0.0, 0, {}
        for index in range(self.repeat):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            steps += info.get("repeats", 1)
            if index == 0 and STATE in info:
                before = {STATE: info[STATE]}
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, {**info, **before, "repeats": steps}


class OwnActions:
    """An environment's own action space, and the linear map between its bounds and [-1, 1].

    Args:
        space: the action space; a missing bound counts as -1 or 1.

    Attributes:
        low, high: the bounds, float64, in the shape of the space.
        space, dtype: the action space and its dtype.

    Raises:
        ValueError: if a lower bound is not below its upper one.
    """

    def __init__(self, space: gym.spaces.Box):
        self.low, self.high = _bounds(space.low, space.high)
        if not (self.low < self.high).all():
            raise ValueError(f"actions are bounded by {space.low} and {space.high}, which leaves no interval")
        self.space, self.dtype = space, space.dtype
        self._half = (self.high - self.low) / 2

    def are_within(self, low: np.ndarray, high: np.ndarray) -> bool:
        """Whether another action space has the same bounds."""
        return low.shape == self.low.shape and np.allclose(_bounds(low, high), (self.low, self.high))

    def of(self, action: np.ndarray) -> np.ndarray:
        """Maps an action (|A|,) in [-1, 1] to the environment's own."""
        return self.of_batch(np.asarray(action)[None])[0]

    def of_batch(self, actions: np.ndarray) -> np.ndarray:
        """Maps actions (N, |A|) in [-1, 1] to the environment's own, (N, *shape)."""
        scaled = self.low + (np.asarray(actions, np.float64).reshape(-1, *self.low.shape) + 1.0) * self._half
        return scaled.astype(self.dtype)

    def inverse(self, own_actions: np.ndarray) -> np.ndarray:
        """Maps the environment's own actions (T, *shape) to (T, |A|), float32 in [-1, 1]."""
        scaled = (np.asarray(own_actions, np.float64) - self.low) / self._half - 1.0
        return scaled.reshape(len(own_actions), -1).clip(-1.0, 1.0).astype(np.float32)


def _bounds(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bounds as float64, with -1 and 1 for missing ones."""
    finite_low = np.where(low <= -UNBOUNDED, -1.0, low).astype(np.float64)
    return finite_low, np.where(high >= UNBOUNDED, 1.0, high).astype(np.float64)


class RescaledActions(TransformAction):
    """Takes flat float32 actions in [-1, 1], for any bounds and shape of the environment's own action Box.

    Attributes:
        own_actions: the map to the environment's own actions.

    Raises:
        ValueError: if a lower bound is not below its upper one.
    """

    def __init__(self, env: gym.Env):
        space = env.action_space
        assert isinstance(space, gym.spaces.Box)
        self.own_actions = OwnActions(space)
        super().__init__(env, self.own_actions.of, gym.spaces.Box(-1.0, 1.0, (int(np.prod(space.shape)),), np.float32))


def rescale_actions(env: gym.Env) -> gym.Env:
    """Lets a policy act in [-1, 1] (see RescaledActions)."""
    return RescaledActions(env)
