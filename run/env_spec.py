"""The shapes of an environment's observations and actions."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from agent.policy import UniformPolicy
from settings.obs_spec import ObsSpec


class EnvSpec(NamedTuple):
    """The shapes of an environment's observations and actions.

    Attributes:
        obs: the parts of an observation.
        action_shape: (action_dim,), each component of an action in [-1, 1]; or (1,), an integer below num_actions.
        num_actions: number of discrete actions, 2 or more; None if actions are continuous.
    """

    obs: ObsSpec
    action_shape: tuple[int, ...]
    num_actions: int | None = None

    @classmethod
    def of(cls, env: gym.Env) -> "EnvSpec":
        return cls.of_spaces(env.observation_space, env.action_space)

    @classmethod
    def of_spaces(cls, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> "EnvSpec":
        obs = getattr(observation_space, "obs_spec", None) or ObsSpec.of_shape(tuple(observation_space.shape or ()))
        num_actions = int(action_space.nvec[0]) if isinstance(action_space, gym.spaces.MultiDiscrete) else None
        return cls(obs, tuple(action_space.shape or ()), num_actions)

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return self.obs.shape

    @property
    def obs_dim(self) -> int:
        return self.obs.image_bytes + self.obs.vector_dim

    @property
    def action_dim(self) -> int:
        """The width of a continuous action, or the number of discrete actions."""
        return self.num_actions or self.action_shape[0]

    @property
    def action_range(self) -> tuple[float, float]:
        """The lowest and the highest component of an action."""
        return (0.0, self.num_actions - 1.0) if self.num_actions else (-1.0, 1.0)

    def agent_arguments(self) -> dict[str, Any]:
        """Returns the arguments of an agent's constructor that depend on the environment's shapes."""
        obs = self.obs
        parts: dict[str, Any] = {"obs_shape": list(obs.image)} if obs.image else {}
        parts |= {"vector_dim": obs.vector_dim} if obs.is_mixed else {}
        parts |= {"obs_groups": list(obs.groups)} if obs.groups else {}
        return {"obs_dim": self.obs_dim, **parts, "action_dim": self.action_dim, "action_range": [*self.action_range]}

    def uniform_policy(self, seed: int) -> UniformPolicy:
        """Returns a policy that draws actions uniformly."""
        return UniformPolicy(self.action_dim, self.action_range, seed, self.num_actions is not None)

    def zero_obs(self) -> np.ndarray:
        """Returns an observation of zeros: uint8 with images, float32 otherwise."""
        return np.zeros(self.obs_shape, self.obs.dtype)
