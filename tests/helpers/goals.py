"""Environments that report on their episodes in `info`; importable by name, also in child processes."""

from typing import Any

import gymnasium as gym
import numpy as np


class Goal(gym.Env):
    """Each step's `info` has the action as `moved`, an array of one number; the last has `is_success`.

    An episode succeeds if its place, a random start plus all actions, ends above 0; so episodes differ.
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
    """Every episode has the same return, so evaluations differ only in `info`, such as `is_success`."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        obs, _, *rest = super().step(action)
        return obs, 1.0, *rest  # type: ignore[return-value]


gym.register("Goal-v0", Goal, max_episode_steps=50)
gym.register("Rewarded-v0", Rewarded, max_episode_steps=50)
