"""A task of the suite, whose physics may diverge."""

from typing import Any

import gymnasium as gym
from dm_control.rl.control import PhysicsError

from utils import RunError, one_line


class Simulated(gym.Wrapper):
    """Turns physics that have diverged into a RunError."""

    def __init__(self, env: gym.Env, name: str):
        super().__init__(env)
        self._name = name

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        try:
            return self.env.step(action)
        except PhysicsError as error:
            raise RunError(f"env={self._name}: {one_line(error)}") from None
