"""An environment that tells of its episodes in `info`; importable by name, also in processes."""

from typing import Any

import gymnasium as gym
import numpy as np


class Goal(gym.Env):
    """Its `info` has the action as `moved` in every step, an array of one; at the end whether the sum is positive.

    What was reached after reset and moves alone decides, so every episode has its own values.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    num_steps = 7

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._taken, self._place = 0, float(self.np_random.uniform(-1, 1))
        return np.array([self._place], np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._taken += 1
        self._place += float(action[0])
        ended = self._taken == self.num_steps
        info = {"moved": np.array([action[0]]), "taken": self._taken, "label": "a word"}
        info |= {"is_success": np.bool_(self._place > 0)} if ended else {}
        return np.array([self._place], np.float32), -abs(self._place), ended, False, info


class Rewarded(Goal):
    """Its return is the same in every episode, so evaluations differ in `is_success` alone."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        obs, _, *rest = super().step(action)
        return obs, 1.0, *rest  # type: ignore[return-value]


gym.register("Goal-v0", Goal, max_episode_steps=50)
gym.register("Rewarded-v0", Rewarded, max_episode_steps=50)
