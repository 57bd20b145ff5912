"""Environments that report on their episodes in `info`; importable by name, also in child processes."""

from typing import Any

import gymnasium as gym
import numpy as np
from probes import Probe


class Goal(Probe):
    """Each step's `info` has the action as `moved`, an array of one number; the last has `is_success`.

    An episode succeeds if its place, a random start plus all actions, ends above 0; so episodes differ.
    """

    num_steps = 7

    def begin(self) -> None:
        self._place = float(self.np_random.uniform(-1, 1))

    def reward(self, action: float) -> float:
        self._place += action
        return -abs(self._place)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        *step, info = super().step(action)
        info |= {"moved": np.array([action[0]]), "taken": self.taken, "label": "a word"}
        info |= {"is_success": np.bool_(self._place > 0)} if self.taken == self.num_steps else {}
        return *step, info  # type: ignore[return-value]

    def _obs(self) -> np.ndarray:
        return np.array([self._place], np.float32)


gym.register("Goal-v0", Goal, max_episode_steps=50)
