"""Replay buffers as a user could write them."""

from collections import deque
from typing import Any

import numpy as np
import torch

from replay_buffer import Batch, ReplayBuffer
from settings.types import UnitInterval


class PrioritisedBuffer(ReplayBuffer):
    """Draws rows in proportion to p = (|TD error| + 1e-6)^exponent; new rows get the largest p (arXiv 1511.05952).

    Args:
        exponent, importance: the paper's alpha and beta.
        options, named_options: a ReplayBuffer's.
    """

    def __init__(
        self, *options: Any, exponent: UnitInterval = 0.6, importance: UnitInterval = 0.4, **named_options: Any
    ):
        super().__init__(*options, **named_options)
        self._exponent, self._importance = exponent, importance
        self._p, self._largest = np.zeros(self.capacity), 1.0

    def add(self, *transition: Any, **named: Any) -> None:
        self._p[self.num_added % self.capacity] = self._largest
        super().add(*transition, **named)

    def choose(self, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        sums = self._p[: len(self)].cumsum()
        rows = sums.searchsorted(self._rng.random(batch_size) * sums[-1])
        weights = self._p[rows] ** -self._importance  # (N P)^-beta up to a factor, which the division cancels
        return rows, weights / weights.max()

    def update_priorities(self, index: torch.Tensor, priorities: torch.Tensor) -> None:
        p = (priorities.cpu().double().numpy() + 1e-6) ** self._exponent
        self._p[index.cpu().numpy()] = p
        self._largest = max(self._largest, float(p.max()))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"p": torch.tensor(self._p), "largest": self._largest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._p[:], self._largest = state["p"].cpu().numpy(), state["largest"]


class ListBuffer:
    """A list of transitions, which is no ReplayBuffer; no key sets its capacity."""

    capacity = 90

    def __init__(self, obs_shape: tuple[int, ...], action_shape: tuple[int, ...], device: torch.device, seed: int):
        self.num_added = 0
        self._rows: deque[list[list[float]]] = deque(maxlen=self.capacity)
        self._rng = np.random.default_rng(seed)
        self._device = device

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *transition: Any, discount_before_last: float = 1.0) -> None:
        obs, action, reward, next_obs, _, done_no_max, *discount = transition
        not_done = 0.0 if done_no_max else (*discount, discount_before_last)[0]
        self._rows.append([obs.tolist(), action.tolist(), [float(reward)], next_obs.tolist(), [not_done]])
        self.num_added += 1

    def sample(self, batch_size: int) -> Batch:
        drawn = [self._rows[index] for index in self._rng.integers(0, len(self), batch_size)]
        return Batch(*(torch.tensor(column, device=self._device) for column in zip(*drawn, strict=True)))

    def state_dict(self) -> dict[str, Any]:
        return {"rows": list(self._rows), "num_added": self.num_added, "rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rows = deque(state["rows"], self.capacity)
        self.num_added = state["num_added"]
        self._rng.bit_generator.state = state["rng"]
