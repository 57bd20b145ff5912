"""The shapes of an environment's observations and actions."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from settings.obs_spec import ObsSpec


class EnvSpec(NamedTuple):
    """The shapes of an environment's observations and actions.

    Attributes:
        obs: what an observation is made of.
        action_shape: (action_dim,); each component of an action is in [-1, 1].
    """

    obs: ObsSpec
    action_shape: tuple[int, ...]

    @classmethod
    def of(cls, env: gym.Env) -> "EnvSpec":
        return cls.of_spaces(env.observation_space, env.action_space)

    @classmethod
    def of_spaces(cls, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> "EnvSpec":
        obs = getattr(observation_space, "obs_spec", None) or ObsSpec.of_shape(tuple(observation_space.shape or ()))
        return cls(obs, tuple(action_space.shape or ()))

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return self.obs.shape

    @property
    def obs_dim(self) -> int:
        return self.obs.image_bytes + self.obs.vector_dim

    @property
    def action_dim(self) -> int:
        return self.action_shape[0]

    def agent_arguments(self) -> dict[str, Any]:
        """Returns the arguments of an agent's constructor that depend on it. Of its `obs`, all but the width."""
        obs = self.obs
        parts: dict[str, Any] = {"obs_shape": list(obs.image)} if obs.image else {}
        parts |= {"vector_dim": obs.vector_dim} if obs.is_mixed else {}
        parts |= {"obs_groups": list(obs.groups)} if obs.groups else {}
        return {"obs_dim": self.obs_dim, **parts, "action_dim": self.action_dim, "action_range": [-1.0, 1.0]}

    def zero_obs(self) -> np.ndarray:
        """Returns an observation of zeros: uint8 with images, float32 otherwise."""
        return np.zeros(self.obs_shape, self.obs.dtype)
