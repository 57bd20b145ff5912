"""Agents: what the training loop asks of one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import numpy as np
import torch

from settings.validated import Validated


class Agent(ABC, Validated):
    """A policy that learns from a replay buffer.

    A new algorithm is one file beside this one with a subclass of this class, and one YAML in `config/agent/`.
    Its constructor takes `obs_dim`, `action_dim`, `action_range` and `device` (and, of images, `obs_shape`) from the
    code and the rest from YAML.
    """

    training = True
    supports_prioritised_replay = False  # whether its updates weigh a batch's rows and return priorities of them
    autocast_dtype: torch.dtype | None = None  # of an update's large products; None is that of the parameters
    made_with: tuple[tuple[Any, ...], dict[str, Any]]  # what its constructor was given, for a file that rebuilds it

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        made.made_with = args, kwargs
        return made

    @abstractmethod
    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        """Chooses actions.

        Args:
            obs: (obs_dim,) or (B, obs_dim), float32; images, (C, H, W) or (B, C, H, W), are uint8.
            sample: draw from the policy; otherwise its greedy action.

        Returns:
            float32 within the action range, (action_dim,) or (B, action_dim) as `obs` came.
        """

    @abstractmethod
    def update(self, replay_buffer: Any, logger: Any, step: int) -> None:
        """Makes one update on one batch.

        Args:
            replay_buffer: has `sample(batch_size)`.
            logger: has `log(key, value, step)`; a metric is a detached tensor, fetched only at a dump.
            step: environment steps so far.
        """

    def observe(  # most agents learn from the buffer alone
        self,
        obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        next_obs: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        """Shown every training transition once, in order, before it is stored: for what follows the data itself.

        Args:
            obs, next_obs: (num_envs, obs_dim), float32, or images, of every environment's step; next_obs is the
                episode's last where it ended.
            action: (num_envs, action_dim), float32, whoever chose it.
            reward: (num_envs,), float, raw.
            terminated, truncated: (num_envs,), bool: whether the episode ended, by itself or by a limit.
        """

    def reset(self) -> None:  # most agents carry nothing from episode to episode
        """Called at the start of every training episode."""

    def train(self, training: bool = True) -> None:
        """Switches between training and evaluation."""
        self.training = training

    def sampling(self, seed: int) -> AbstractContextManager[None]:
        """Within it, `act(..., sample=True)` draws from a stream of its own, and from none that training draws from.

        What is set aside meanwhile is the generator of the agent's `policy`, if it has one, and torch's global one if
        not; an agent that draws from another one overrides it.
        """
        of_policy = getattr(getattr(self, "policy", None), "sampling", _from_torch)
        return of_policy(seed)

    UPDATES_ITSELF = "the agent makes its updates itself"

    def why_eager(self) -> str:
        """Why its updates cannot be recorded, compiled or captured, in words; "" if they can (see OffPolicyAgent)."""
        return self.UPDATES_ITSELF

    def state_dict(self) -> dict[str, Any] | None:
        """Everything that training continues from: tensors and plain values only. None: it cannot be resumed."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned.

        Raises:
            RuntimeError: if shapes or names differ, or the agent has none.
        """
        raise RuntimeError(f"{type(self).__name__} has no load_state_dict")


@contextmanager
def _from_torch(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
