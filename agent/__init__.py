"""Agents: the interface between the training loop and an algorithm."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import numpy as np
import torch

from settings.validated import Validated


class Agent(ABC, Validated):
    """A policy that learns from a replay buffer.

    A new algorithm is one file in this folder with a subclass of `OffPolicyAgent` (or of this class), and one YAML in
    `config/agent/`. The framework passes `obs_dim`, `action_dim`, `action_range` and `device` to the constructor, and
    `obs_shape` where observations are images; the YAML gives the other arguments.
    """

    training = True
    discrete_actions = False  # whether actions are integers below action_dim, instead of action_dim numbers in [-1, 1]
    supports_prioritised_replay = False  # whether updates use a batch's weights and return priorities for its rows
    autocast_dtype: torch.dtype | None = None  # dtype of an update's large matmuls; None: the parameters' dtype
    made_with: tuple[tuple[Any, ...], dict[str, Any]]  # the constructor's arguments, so that a file can rebuild it

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        agent = super().__new__(cls)
        agent.made_with = args, kwargs
        return agent

    @abstractmethod
    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        """Chooses actions.

        Args:
            obs: (obs_dim,) or (B, obs_dim), float32; images, (C, H, W) or (B, C, H, W), are uint8.
            sample: whether to draw from the policy instead of taking its greedy action.

        Returns:
            float32 within the action range, (action_dim,) or, for a batch, (B, action_dim). If `discrete_actions`,
            int64 from 0 to action_dim - 1, (1,) or (B, 1).
        """

    @abstractmethod
    def update(self, replay_buffer: Any, logger: Any, step: int) -> None:
        """Makes one update on one batch.

        Args:
            replay_buffer: has `sample(batch_size)`.
            logger: has `log(key, value, step)`; a metric is a detached tensor, fetched from the device at a dump.
            step: environment steps so far.
        """

    def observe(  # the default ignores the data: most agents learn from the replay buffer alone
        self,
        obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        next_obs: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        """Called once with every training transition, in order, before it is stored.

        Args:
            obs, next_obs: (num_envs, obs_dim), float32, or images; at the end of an episode, next_obs is its last
                observation.
            action: (num_envs, action_dim), float32, or as `act` returned it.
            reward: (num_envs,), float, unscaled.
            terminated, truncated: (num_envs,), bool.
        """

    def reset(self) -> None:  # the default does nothing: most agents keep no state between steps
        """Called at the start of every training episode."""

    def train(self, training: bool = True) -> None:
        """Switches between training and evaluation mode."""
        self.training = training

    def sampling(self, seed: int) -> AbstractContextManager[None]:
        """Returns a context in which `act(..., sample=True)` draws from a separate stream; training's does not advance.

        It replaces the generator of the agent's `policy` or, if it has none, seeds torch's global generator. Override
        it in an agent that draws from another generator.
        """
        return getattr(getattr(self, "policy", None), "sampling", _global_sampling)(seed)

    UPDATES_ITSELF = "the agent makes its updates itself"

    def why_eager(self) -> str:
        """Returns why updates cannot be recorded, compiled or captured; "" if they can (see OffPolicyAgent)."""
        return self.UPDATES_ITSELF

    def state_dict(self) -> dict[str, Any] | None:
        """Returns all that training resumes from, as tensors and plain values; None if the agent cannot be resumed."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned.

        Raises:
            RuntimeError: if shapes or names differ, or the agent cannot be resumed.
        """
        raise RuntimeError(f"{type(self).__name__} has no load_state_dict")


@contextmanager
def _global_sampling(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
