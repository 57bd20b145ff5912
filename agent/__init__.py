"""Agents: the interface between the training loop and an algorithm."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from utils import UserError


class Agent(ABC):
    """A policy that learns from a replay buffer. Most algorithms inherit from agent.off_policy.OffPolicyAgent.

    The constructor gets `obs_dim`, `action_dim`, `action_range` and `device`, for images `obs_shape` too
    (run/agents.py), and the other keys of `config/agent/<name>.yaml`.
    """

    training = True
    discrete_actions = False  # whether actions are integers below action_dim, instead of action_dim numbers in [-1, 1]
    supports_prioritised_replay = False  # whether updates use a batch's weights and return priorities for its rows

    @abstractmethod
    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        """Returns greedy actions or samples for observations (obs_dim,) or (B, obs_dim), float32, or images, uint8.

        They are float32, (action_dim,) or (B, action_dim); if `discrete_actions`, int64, (1,) or (B, 1).
        """

    @abstractmethod
    def update(self, replay_buffer: Any, logger: Any, step: int) -> None:
        """Makes an update on `replay_buffer.sample(batch_size)`; `logger.log(key, value, step)` takes its metrics."""

    def observe(  # noqa: B027  most agents learn from the replay buffer alone
        self, obs: Any, action: Any, reward: Any, next_obs: Any, terminated: Any, truncated: Any
    ) -> None:
        """Called with every training step of all environments, in order, before it is stored: (num_envs, …) each."""

    def reset(self) -> None:  # noqa: B027
        """Called at the start of every training episode."""

    def train(self, training: bool = True) -> None:
        """Switches between training and evaluation."""
        self.training = training

    def recording_obstacle(self) -> str | None:
        """Returns why updates cannot be recorded, compiled or captured; None if they can."""
        return "the agent makes its updates itself"

    def state_dict(self) -> dict[str, Any] | None:
        """Returns all that training resumes from, as tensors and plain values; None if it cannot be resumed."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise RuntimeError(f"{type(self).__name__} has no load_state_dict")


def require_support(agent: Any, replay_buffer: Any) -> None:
    """Raises UserError, before training, if the buffer draws by priority and the agent returns no priorities."""
    if hasattr(replay_buffer, "update_priorities") and not agent.supports_prioritised_replay:
        name = type(agent).__name__
        raise UserError(
            f"replay_buffer: it draws by priority, and {name} returns no priorities; choose an agent that does, such "
            f"as sac, or replay_buffer=uniform ({name}.supports_prioritised_replay is false)"
        )
