"""Wrappers for any Gymnasium environment: hold an action for several steps, and act in [-1, 1]."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TransformAction

UNBOUNDED = 1e6  # a bound of this size or more is no bound at all: `lqr` says 1e10, others say infinity


class ActionRepeat(gym.Wrapper):
    """Holds each action for `repeat` steps and sums their rewards; stops early where the episode ends.

    `info["repeats"]` says how many steps were taken, those of another one inside it counted.
    """

    def __init__(self, env: gym.Env, repeat: int):
        if repeat < 1:
            raise ValueError(f"an action is held for 1 step or more, not {repeat}")
        super().__init__(env)
        self.repeat = repeat

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        taken = 0
        for _ in range(self.repeat):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            taken += info.get("repeats", 1)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, {**info, "repeats": taken}


class OwnActions:
    """An environment's own actions, and how those in [-1, 1] map onto them.

    Args:
        space: of the environment; a bound that is none counts as -1 or 1.

    Attributes:
        low, high: the bounds, float64, in the space's shape.
        space, dtype: of its actions.

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
        """Whether another space of actions has these bounds."""
        return low.shape == self.low.shape and np.allclose(_bounds(low, high), (self.low, self.high))

    def of(self, action: np.ndarray) -> np.ndarray:
        """(|A|,) in [-1, 1] -> the environment's own."""
        scaled = self.low + (np.asarray(action, np.float64).reshape(self.low.shape) + 1.0) * self._half
        return scaled.astype(self.dtype)

    def inverse(self, own: np.ndarray) -> np.ndarray:
        """Actions of the environment's own, (T, *shape) -> (T, |A|), float32 in [-1, 1]."""
        scaled = (np.asarray(own, np.float64) - self.low) / self._half - 1.0
        return scaled.reshape(len(own), -1).clip(-1.0, 1.0).astype(np.float32)


def _bounds(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of an action space, -1 and 1 where there are none."""
    finite_low = np.where(low <= -UNBOUNDED, -1.0, low).astype(np.float64)
    return finite_low, np.where(high >= UNBOUNDED, 1.0, high).astype(np.float64)


class RescaledActions(TransformAction):
    """Takes actions in [-1, 1], float32 and flat, whatever the bounds and the shape of the env's action Box.

    Attributes:
        own_actions: those of the environment itself.

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
