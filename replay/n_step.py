"""n-step transitions: what an environment gave in n steps, as one row for the replay buffer."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from settings.types import PositiveInt, UnitInterval
from settings.validated import Validated


class NStep(Validated):
    """Turns every environment's transitions, step by step, into the rows that a replay buffer stores.

    The row that begins at step t has obs_t, action_t, the reward r_t + gamma r_{t+1} + … of k steps, the observation
    behind them, and gamma^(k-1) as its discount: k is n, or fewer where the episode ended sooner. No row reaches
    from one episode into the next, and each transition begins one. With n = 1 they pass through as they are; with more,
    an environment's newest n - 1 transitions wait here.

    Args:
        n_step: n.
        discount: gamma; for n = 1 it does not matter.
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
        """One step of every environment in, the arguments of `ReplayBuffer.add` out: the rows it completes.

        Args:
            obs, next_obs: (num_envs, obs_dim), or images.
            actions: (num_envs, |A|).
            rewards, done, terminated: (num_envs,); done is terminated or truncated.
        """
        step = zip(obs, actions, rewards, next_obs, done, terminated, strict=True)
        if self._n_step == 1:
            return step
        if not self._pending:
            self._pending = [deque() for _ in obs]
        completed = []
        for pending, (o, action, reward, o_behind, is_done, is_terminated) in zip(self._pending, step, strict=True):
            pending.append((np.array(o), np.array(action), float(reward)))
            while len(pending) == self._n_step or (is_done and pending):
                total = 0.0
                for _, _, later in reversed(pending):
                    total = later + self._discount * total
                discount = self._discount ** (len(pending) - 1)
                first_obs, first_action, _ = pending.popleft()
                row = first_obs, first_action, total, o_behind, is_done, is_terminated, discount
                completed.append(row)
        return completed

    @property
    def num_pending(self) -> int:
        """Transitions that are in no row yet."""
        return sum(map(len, self._pending))

    def state_dict(self) -> dict[str, Any]:
        """The transitions that wait, as plain values."""
        waiting = [[(_plain(o), action.tolist(), reward) for o, action, reward in one] for one in self._pending]
        return {"pending": waiting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._pending = [
            deque((_array(o), np.array(action, np.float32), reward) for o, action, reward in one)
            for one in state["pending"]
        ]


def _plain(obs: np.ndarray) -> Any:
    return torch.from_numpy(obs) if obs.dtype == np.uint8 else obs.tolist()  # an image is no list of 20 000 numbers


def _array(plain: Any) -> np.ndarray:
    return plain.numpy() if isinstance(plain, torch.Tensor) else np.array(plain, np.float32)
