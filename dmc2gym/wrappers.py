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


def rescale_actions(env: gym.Env) -> gym.Env:
    """Lets a policy act in [-1, 1], float32 and flat, whatever the bounds and the shape of the env's action Box.

    Raises:
        ValueError: if a lower bound is not below its upper one.
    """
    space = env.action_space
    assert isinstance(space, gym.spaces.Box)
    low = np.where(space.low <= -UNBOUNDED, -1.0, space.low).astype(np.float64)
    high = np.where(space.high >= UNBOUNDED, 1.0, space.high).astype(np.float64)
    if not (low < high).all():
        raise ValueError(f"actions are bounded by {space.low} and {space.high}, which leaves no interval")
    half = (high - low) / 2

    def to_bounds(action: np.ndarray) -> np.ndarray:
        scaled = low + (np.asarray(action, np.float64).reshape(space.shape) + 1.0) * half
        return scaled.astype(space.dtype)

    return TransformAction(env, to_bounds, gym.spaces.Box(-1.0, 1.0, (int(np.prod(space.shape)),), np.float32))
