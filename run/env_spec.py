"""The shapes of an environment's observations and actions."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np


class EnvSpec(NamedTuple):
    """The shapes of an environment's observations and actions. Observations with more than one axis are images.

    Attributes:
        obs_shape: (obs_dim,), or (channels, height, width) of an image.
        action_shape: (action_dim,); each component of an action is in [-1, 1].
    """

    obs_shape: tuple[int, ...]
    action_shape: tuple[int, ...]

    @classmethod
    def of(cls, env: gym.Env) -> "EnvSpec":
        return cls.of_spaces(env.observation_space, env.action_space)

    @classmethod
    def of_spaces(cls, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> "EnvSpec":
        return cls(tuple(observation_space.shape or ()), tuple(action_space.shape or ()))

    @property
    def obs_dim(self) -> int:
        return int(np.prod(self.obs_shape))

    @property
    def action_dim(self) -> int:
        return self.action_shape[0]

    @property
    def is_image(self) -> bool:
        return len(self.obs_shape) > 1

    def agent_arguments(self) -> dict[str, Any]:
        """Returns the arguments of an agent's constructor that depend on it; `obs_shape` only for images."""
        images = {"obs_shape": list(self.obs_shape)} if self.is_image else {}
        return {"obs_dim": self.obs_dim, **images, "action_dim": self.action_dim, "action_range": [-1.0, 1.0]}

    def zero_obs(self) -> np.ndarray:
        """Returns an observation of zeros: uint8 for images, float32 otherwise."""
        return np.zeros(self.obs_shape, np.uint8 if self.is_image else np.float32)
