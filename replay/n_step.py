"""n-step transitions: n steps of an environment as one row of the replay buffer."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from settings.types import PositiveInt, UnitInterval
from settings.validated import Validated


class NStep(Validated):
    """Turns the transitions of all environments, step by step, into rows for the replay buffer.

    The row that begins at step t has obs_t, action_t, the reward r_t + gamma r_{t+1} + … of k steps, the observation
    after them, and the discount gamma^(k-1); k is n, or fewer if the episode ends sooner. Each transition begins a row,
    and no row crosses the end of an episode. With n above 1, the newest n - 1 transitions of each environment are
    pending.

    Args:
        n_step: n.
        discount: gamma; unused for n = 1.
    """

    def __init__(self, n_step: PositiveInt, discount: UnitInterval = 1.0):
        self._n_step = n_step
        self._discount = discount
        self._pending: list[deque[tuple[np.ndarray, np.ndarray, float]]] = []  # by environment, oldest first

    def rows(
        self,
        obs: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        next_obs: np.ndarray,
        done: np.ndarray,
        terminated: np.ndarray,
    ) -> Iterable[tuple[Any, ...]]:
        """Takes one step of every environment and returns the rows that it completes.

        Args:
            obs, next_obs: (num_envs, obs_dim), or images.
            actions: (num_envs, |A|).
            rewards, done, terminated: (num_envs,); done is terminated or truncated.

        Returns:
            Arguments of `ReplayBuffer.add`.
        """
        step = zip(obs, actions, rewards, next_obs, done, terminated, strict=True)
        if self._n_step == 1:
            return step
        if not self._pending:
            self._pending = [deque() for _ in obs]
        completed = []
        for pending, (o, action, reward, next_o, is_done, is_terminated) in zip(self._pending, step, strict=True):
            pending.append((np.array(o), np.array(action), float(reward)))  # copies: the arrays may be reused
            while len(pending) == self._n_step or (is_done and pending):
                total = 0.0
                for _, _, step_reward in reversed(pending):
                    total = step_reward + self._discount * total
                discount = self._discount ** (len(pending) - 1)
                first_obs, first_action, _ = pending.popleft()
                completed.append((first_obs, first_action, total, next_o, is_done, is_terminated, discount))
        return completed

    @property
    def num_pending(self) -> int:
        """The number of transitions that begin no row yet."""
        return sum(map(len, self._pending))

    def state_dict(self) -> dict[str, Any]:
        """The pending transitions, as plain values."""
        return {"pending": [[(_plain(o), a.tolist(), reward) for o, a, reward in env] for env in self._pending]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._pending = [
            deque((_array(o), np.array(action, np.float32), reward) for o, action, reward in env)
            for env in state["pending"]
        ]


def _plain(obs: np.ndarray) -> Any:
    return torch.from_numpy(obs) if obs.dtype == np.uint8 else obs.tolist()  # not a list of 20 000 numbers


def _array(plain: Any) -> np.ndarray:
    return plain.numpy() if isinstance(plain, torch.Tensor) else np.array(plain, np.float32)
