"""The shapes of an environment's observations and actions."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from agent.policy import UniformPolicy


class EnvSpec(NamedTuple):
    """The shapes of an environment's observations and actions. Observations with more than one axis are images.

    Attributes:
        obs_shape: (obs_dim,), or (channels, height, width) of an image.
        action_shape: (action_dim,), each component of an action in [-1, 1]; or (1,), an integer below num_actions.
        num_actions: of discrete actions, 2 or more; None where they are continuous.
    """

    obs_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    num_actions: int | None = None

    @classmethod
    def of(cls, env: gym.Env) -> "EnvSpec":
        return cls.of_spaces(env.observation_space, env.action_space)

    @classmethod
    def of_spaces(cls, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> "EnvSpec":
        num_actions = int(action_space.nvec[0]) if isinstance(action_space, gym.spaces.MultiDiscrete) else None
        return cls(tuple(observation_space.shape or ()), tuple(action_space.shape or ()), num_actions)

    @property
    def row_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the observation and the action in a replay buffer's rows."""
        return self.obs_shape, self.action_shape

    @property
    def obs_dim(self) -> int:
        return int(np.prod(self.obs_shape))

    @property
    def action_dim(self) -> int:
        """The width of an action; the number of discrete ones."""
        return self.num_actions or self.action_shape[0]

    @property
    def action_range(self) -> tuple[float, float]:
        """The lowest and the highest component of an action."""
        return (0.0, self.num_actions - 1.0) if self.num_actions else (-1.0, 1.0)

    @property
    def is_image(self) -> bool:
        return len(self.obs_shape) > 1

    def agent_arguments(self) -> dict[str, Any]:
        """Returns the arguments of an agent's constructor that depend on it; `obs_shape` only for images."""
        images = {"obs_shape": list(self.obs_shape)} if self.is_image else {}
        return {"obs_dim": self.obs_dim, **images, "action_dim": self.action_dim, "action_range": [*self.action_range]}

    def zero_obs(self) -> np.ndarray:
        """Returns an observation of zeros: uint8 for images, float32 otherwise."""
        return np.zeros(self.obs_shape, np.uint8 if self.is_image else np.float32)


def uniform_policy(spec: EnvSpec, seed: int) -> UniformPolicy:
    """The policy that draws from all actions alike."""
    return UniformPolicy(spec.action_dim, spec.action_range, seed, spec.num_actions is not None)
