"""The replay buffer. Transitions are packed rows of one array, so a batch is one gather and one copy to the device."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from settings.types import Factory, NonNegativeInt, PositiveInt
from utils import UserError

CHUNK_BYTES = 2**23  # size of the arrays that Ring.chunks yields


class Batch(NamedTuple):
    """A batch of transitions, on the buffer's device.

    Attributes:
        obs, next_obs: (B, *obs_shape), float32 or, for images, uint8.
        action: (B, |A|), float32.
        reward: (B, 1), float32; in a row of k steps (replay/n_step.py), the discounted sum of their rewards.
        discount: (B, 1), float32: 0 where the episode terminated (a time limit is no termination), else 1, or
            gamma^(k-1) in a row of k steps.
    """

    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    next_obs: torch.Tensor
    discount: torch.Tensor

    @property
    def weight(self) -> torch.Tensor | None:  # a WeightedBatch has it
        return None

    @property
    def index(self) -> torch.Tensor | None:  # type: ignore[override]
        return None


class WeightedBatch(NamedTuple):
    """A Batch with weights (B,) on its rows' losses, and the rows' places in the buffer, (B,), int64."""

    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    next_obs: torch.Tensor
    discount: torch.Tensor
    weight: torch.Tensor
    index: torch.Tensor  # type: ignore[assignment]


class Ring:
    """Keeps the newest `capacity` rows of float32. Memory is taken from the system only as the ring fills.

    Attributes:
        rows: the memory, (capacity, row_width).
        num_added: rows added so far. Row i, counted from the first ever added, is in place i % capacity.
        device: where `send` copies rows to.
    """

    def __init__(self, capacity: int, row_width: int, device: torch.device):
        self.capacity, self.row_width, self.device = capacity, row_width, device
        self.rows = np.zeros((capacity, row_width), np.float32)
        self.num_added = 0

    def __len__(self) -> int:
        return min(self.num_added, self.capacity)

    def send(self, places: Any) -> torch.Tensor:
        """Returns the rows in places (N,) on the device, (N, row_width)."""
        if self.device.type != "cuda":
            return torch.from_numpy(self.rows.take(places, axis=0)).to(self.device, non_blocking=True)
        # torch keeps pinned memory until the copy is done, so nothing waits. With mode="clip" NumPy needs no temporary.
        rows = torch.empty(len(places), self.row_width, pin_memory=True)
        self.rows.take(places, axis=0, out=rows.numpy(), mode="clip")
        return rows.to(self.device, non_blocking=True)

    def chunks(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Yields rows [start, stop), counted from the first ever added, as views of a few megabytes."""
        at_once = max(1, CHUNK_BYTES // (4 * self.row_width))
        while start < stop:
            first = start % self.capacity
            rows = self.rows[first : min(first + at_once, first + stop - start, self.capacity)]
            yield rows
            start += len(rows)

    def put_chunk(self, start: int, rows: np.ndarray) -> None:
        """Stores rows from number `start` on, counted from the first ever added; does not change `num_added`."""
        self.rows[np.arange(start, start + len(rows)) % self.capacity] = rows


class ReplayBuffer(Ring):
    """A replay buffer of the newest `capacity` transitions.

    A row is `obs | action | reward | discount | next_obs` in float32; images, uint8, are stored as bytes. Batches go to
    `device`. The factory `sampling` draws rows otherwise than uniformly (replay/sampling.py).
    """

    update_priorities: Callable[[torch.Tensor, torch.Tensor], None]  # set only if `sampling` has it
    generators: Sequence[torch.Generator] = ()  # on the device; `staged` draws from them

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        action_shape: tuple[int, ...],
        capacity: PositiveInt,
        device: torch.device,
        seed: NonNegativeInt = 0,
        with_replacement: bool = True,
        sampling: Factory | None = None,
    ):
        if sampling and not with_replacement:
            raise UserError("sample_with_replacement=false: only rows that are drawn uniformly can be drawn like that")
        self._obs_shape, self._obs_dim, self._as_bytes = obs_shape, math.prod(obs_shape), len(obs_shape) != 1
        obs_width = -(-self._obs_dim // 4) if self._as_bytes else self._obs_dim  # four bytes to a float
        self._widths = [obs_width, math.prod(action_shape), 1, 1, obs_width]
        super().__init__(capacity, sum(self._widths), device)
        self._next_obs_at = self.row_width - self._widths[-1]
        self.with_replacement, self._rng = with_replacement, np.random.default_rng(seed)
        self.sampling: Any = sampling(capacity=capacity) if sampling else None
        if update := getattr(self.sampling, "update_priorities", None):
            self.update_priorities = update
        self._staged: tuple[torch.Tensor, ...] = ()

    @property
    def rings(self) -> dict[str, Any]:  # that a checkpoint saves
        return {"rows": self}

    def add(
        self, obs: Any, action: Any, reward: float, next_obs: Any, done: bool, done_no_max: bool, discount: float = 1.0
    ) -> None:
        """Stores one transition; a full buffer drops its oldest one.

        Args:
            obs, next_obs: (*obs_shape).
            action: (|A|,), in the policy's range.
            done: whether the episode ended; this buffer does not need it.
            done_no_max: whether the episode *terminated*; after a time limit the target bootstraps.
            discount: gamma^(k-1) for a row of k steps; the target multiplies by gamma once more.
        """
        place = self.num_added % self.capacity
        self._write(self.rows[place : place + 1], (obs, action, reward, next_obs, done, done_no_max, discount))
        self.num_added += 1

    def add_batch(self, *columns: Any) -> None:
        """Stores N transitions; takes the arguments of `add`, each (N, ...)."""
        rows = np.zeros((len(columns[0]), self.row_width), np.float32)
        self._write(rows, tuple(map(np.asarray, columns)))
        self.put_chunk(self.num_added, rows)
        self.num_added += len(rows)

    def _write(self, rows: Any, columns: tuple[Any, ...]) -> None:
        """Packs N transitions into rows, an array or a tensor; `reshape` refuses what would be broadcast."""
        obs, action, reward, next_obs, _, terminated, *discount = columns
        obs_width, reward_at = self._widths[0], self._next_obs_at - 2
        for start, values in ((0, obs), (self._next_obs_at, next_obs)):
            values = values.reshape(len(rows), self._obs_dim)
            if self._as_bytes:
                np.copyto(rows.view(np.uint8)[:, 4 * start : 4 * start + self._obs_dim], values)
            else:
                rows[:, start : start + obs_width] = values
        rows[:, obs_width:reward_at] = action.reshape(len(rows), self._widths[1])
        rows[:, reward_at] = reward
        rows[:, reward_at + 1] = (discount[0] if discount else 1.0) * (terminated == 0)

    def sample(self, batch_size: int) -> Batch | WeightedBatch:
        """Draws a batch. Raises ValueError if there is nothing to draw or, without replacement, too little."""
        return self.unpack(*self.take(*self.choose(batch_size)))

    def choose(self, batch_size: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Draws places of rows, (B,), and their weights, (B,) or None. Override it to draw rows in another way."""
        if not self.num_added:
            raise ValueError("nothing to sample: the replay buffer is empty")
        if self.sampling is not None:
            return self.sampling.choose(self._rng, self.num_added, len(self), batch_size)
        if self.with_replacement:
            return self._rng.integers(0, len(self), batch_size), None
        return self._rng.choice(len(self), batch_size, replace=False, shuffle=False), None

    def take(self, places: Any, weight: np.ndarray | None = None) -> tuple[torch.Tensor, ...]:
        """Returns, on the device, the rows in places (B,) and, if there are weights, these and the places."""
        weighted = () if weight is None else (torch.from_numpy(weight).float(), torch.from_numpy(places))
        return self.send(places), *(part.to(self.device) for part in weighted)

    def unpack(self, rows: torch.Tensor, *weighted: torch.Tensor) -> Any:
        """Makes a batch of what `take` returned: views of the rows, except images, which may be copied."""
        obs, action, reward, discount, next_obs = rows.split(self._widths, dim=1)
        if self._as_bytes:
            images = (part.contiguous().view(torch.uint8)[:, : self._obs_dim] for part in (obs, next_obs))
            obs, next_obs = (part.reshape(-1, *self._obs_shape) for part in images)
        columns = obs, action, reward, next_obs, discount
        return WeightedBatch(*columns, *weighted) if weighted else Batch(*columns)

    def stage(self, batch_size: int) -> None:
        """Does the host's half of `sample`: copies rows to where a captured CUDA graph, which calls `staged`, reads."""
        if type(self).sample is not ReplayBuffer.sample:
            raise UserError(f"{type(self).__name__}: CUDA graphs call stage, not sample; override choose instead")
        parts = self.take(*self.choose(batch_size))
        if not self._staged or len(self._staged[0]) != batch_size:
            self._staged = parts
        for staged, part in zip(self._staged, parts, strict=True):
            staged.copy_(part)

    def staged(self) -> Batch | WeightedBatch:
        """Does the device's half of `sample`: returns views of the staged rows, which the next `stage` overwrites."""
        return self.unpack(*self._staged)

    def stored(self, start: int, stop: int) -> Batch:
        """Returns copies of transitions [start, stop), counted from the first ever added, as a batch."""
        return self.unpack(torch.from_numpy(np.concatenate(list(self.chunks(start, stop)))))

    def state_dict(self) -> dict[str, Any]:
        """Returns all but the rows, which `chunks` yields, and `put_chunk` restores before `load_state_dict`."""
        counts = {"num_added": self.num_added, "capacity": self.capacity, "row_width": self.row_width}
        state = {**counts, "rng": self._rng.bit_generator.state}
        return state | ({"sampling": self.sampling.state_dict()} if hasattr(self.sampling, "state_dict") else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_added, self._rng.bit_generator.state = state["num_added"], state["rng"]
        if "sampling" in state:
            self.sampling.load_state_dict(state["sampling"])
