"""Environments whose rendered frames or observed images change their size."""

from typing import Any

import gymnasium as gym
import numpy as np
from probes import Endless, Images


class Resizing(Endless):
    """Renders smaller frames from the fourth step of an episode on."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    render_mode = "rgb_array"

    def render(self) -> Any:
        size = 64 if self.taken < 4 else 32
        return np.full((size, size, 3), 10 * self.taken, np.uint8)


class ResizingImages(Images):
    """Observes larger images from the 43rd step on."""

    observation_space = gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    steps_since_built = 0

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self.steps_since_built += 1
        return super().step(action)

    def _obs(self) -> np.ndarray:
        size = 80 if self.steps_since_built >= 43 else 64
        return np.full((size, size, 3), self.taken, np.uint8)


gym.register("ProbeResizing-v0", Resizing, max_episode_steps=5)
gym.register("ProbeResizingImages-v0", ResizingImages, max_episode_steps=100)
