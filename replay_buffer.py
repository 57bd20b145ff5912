"""The replay buffer. Transitions are packed rows of one array, so a batch is one gather and one copy to the device."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch

from settings.operating_system import available_bytes
from settings.types import Factory, Interface, NonNegativeInt, PositiveInt
from settings.validated import Validated
from utils import Ring, UserError, require_count

SamplingFactory = Annotated[Factory, Interface("a way of drawing rows", ("capacity",), ("choose",))]


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
    def weight(self) -> torch.Tensor | None:
        """Returns None, as the rows were drawn uniformly; a WeightedBatch has importance weights (B,)."""
        return None

    @property
    def index(self) -> torch.Tensor | None:  # type: ignore[override]
        """Returns None; a WeightedBatch has the indices of its rows in the buffer, (B,)."""
        return None

    def weighted(self, weight: np.ndarray, index: np.ndarray) -> "WeightedBatch":
        """Returns the same rows with importance weights (B,) and buffer indices (B,), copied to the rows' device."""
        weights = torch.tensor(weight, dtype=torch.float32, device=self.reward.device)
        return WeightedBatch(*self, weights, torch.tensor(index, dtype=torch.int64, device=self.reward.device))


class WeightedBatch(NamedTuple):
    """A Batch whose rows were not drawn uniformly.

    Attributes:
        weight: (B,), float32: factors on the rows' losses.
        index: (B,), int64: the rows' indices in the buffer, for `update_priorities`.
    """

    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    next_obs: torch.Tensor
    discount: torch.Tensor
    weight: torch.Tensor
    index: torch.Tensor  # type: ignore[assignment]


class ReplayBuffer(Ring, Validated):
    """A replay buffer of the newest `capacity` transitions.

    A row is `obs | action | reward | discount | next_obs` in float32; observations of uint8 are stored as bytes.

    Args:
        obs_shape: shape of one observation: vectors are float32, images uint8.
        action_shape: (|A|,).
        capacity: maximum number of transitions.
        device: the device of the batches.
        seed: seed of the random generator that draws the batches.
        with_replacement: whether a transition may occur twice in a batch.
        sampling: factory of a non-uniform sampling method (replay/sampling.py); None draws rows uniformly.

    Raises:
        UserError: if the rows would not fit into memory, or the arguments exclude each other.
    """

    update_priorities: Callable[[torch.Tensor, torch.Tensor], None]  # set only if `sampling` has it

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        action_shape: tuple[int, ...],
        capacity: PositiveInt,
        device: torch.device,
        seed: NonNegativeInt = 0,
        with_replacement: bool = True,
        sampling: SamplingFactory | None = None,
    ):
        require_memory(obs_shape, action_shape, capacity)
        self._uniform = not sampling and type(self).choose is ReplayBuffer.choose
        if not with_replacement and not self._uniform:
            raise UserError("sample_with_replacement=false: only rows that are drawn uniformly can be drawn like that")
        obs_width, width = _row_width(obs_shape, action_shape)
        super().__init__(capacity, width)
        self.device, self.with_replacement = device, with_replacement
        self._obs_shape = obs_shape
        self._as_bytes = len(obs_shape) != 1
        self._obs_dim = int(np.prod(obs_shape))
        action_dim = int(np.prod(action_shape))
        self._action_at, self._reward_at = obs_width, obs_width + action_dim
        self._next_obs_at = self._reward_at + 2
        self._widths = [obs_width, action_dim, 1, 1, obs_width]
        self._rng = np.random.default_rng(seed)
        self.sampling: Any = sampling and sampling(capacity=capacity)
        if update := getattr(self.sampling, "update_priorities", None):
            if hasattr(self, "update_priorities"):
                raise UserError(f"replay_buffer.sampling: {type(self).__name__} itself draws by priority; leave it out")
            self.update_priorities = update
        self._staged: tuple[torch.Tensor, ...] = ()
        self._staged_weight = torch.empty(0, device=device)
        self._staged_index = torch.empty(0, dtype=torch.int64, device=device)

    @property
    def rings(self) -> dict[str, Ring]:
        """The rings that a checkpoint saves (run/checkpoint.py), by name."""
        return {"rows": self}

    def spans(self, state: dict[str, Any]) -> dict[str, tuple[int, int]]:
        """Returns, for each ring, the rows [start, stop) that a checkpoint with this state has to contain."""
        num_added = require_count(state["num_added"], "num_added")
        return {"rows": (max(0, num_added - self.capacity), num_added)}

    def add(
        self,
        obs: np.ndarray,
        action: np.ndarray,
        reward: float,
        next_obs: np.ndarray,
        done: bool,
        done_no_max: bool,
        discount: float = 1.0,
    ) -> None:
        """Stores one transition; a full buffer drops its oldest one.

        Args:
            obs, next_obs: (*obs_shape).
            action: (|A|,), in the policy's range.
            reward: unscaled.
            done: whether the episode ended; this buffer does not need it.
            done_no_max: whether the episode *terminated*; after a time limit the target bootstraps.
            discount: gamma^(k-1) for a row of k steps; the target multiplies by gamma once more.
        """
        place = self.num_added % self.capacity
        self._write(self.rows[place : place + 1], (obs, action, reward, next_obs, done, done_no_max, discount))
        self.num_added += 1

    def add_batch(self, *columns: Any) -> None:
        """Stores N transitions; takes the arguments of `add`, each as an array or a list (N, ...)."""
        self._add_to(self.rows, tuple(np.asarray(each) if isinstance(each, list) else each for each in columns))

    def _add_to(self, ring: Any, columns: tuple[Any, ...]) -> None:
        """Writes N transitions after the newest row of `ring`, an array or a tensor; keeps the last `capacity` rows."""
        count = len(columns[0])
        start = max(0, count - self.capacity)
        while start < count:
            first = (self.num_added + start) % self.capacity
            stop = min(count, start + self.capacity - first)
            self._write(ring[first : first + stop - start], tuple(column[start:stop] for column in columns))
            start = stop
        self.num_added += count

    def _write(self, rows: Any, columns: tuple[Any, ...]) -> None:
        """Writes columns to packed rows (N, width); broadcasts no shape (ValueError), rounds no image (TypeError)."""
        obs, action, reward, next_obs, _, terminated, *discount = columns
        self._put_obs(rows, 0, obs)
        rows[:, self._action_at : self._reward_at] = action.reshape(len(rows), self._widths[1])
        rows[:, self._reward_at] = reward
        rows[:, self._reward_at + 1] = (discount[0] if discount else 1.0) * (terminated == 0)
        self._put_obs(rows, self._next_obs_at, next_obs)

    def _put_obs(self, rows: Any, start: int, obs: Any) -> None:
        values = obs.reshape(len(rows), self._obs_dim)
        if self._as_bytes:
            np.copyto(rows.view(np.uint8)[:, 4 * start : 4 * start + self._obs_dim], values)
        else:
            rows[:, start : start + self._obs_dim] = values

    def choose(self, batch_size: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Draws the next batch's row indices (B,), uniformly or by `sampling`; returns them and weights (B,) or None.

        Override it to draw rows in another way, with importance weights (B,) for every batch.
        """
        if self.sampling is None or not self.num_added:
            return self._draw(batch_size), None
        return self.sampling.choose(self._rng, self.num_added, len(self), batch_size)

    def chosen(self, batch_size: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Calls `choose`, and checks what one that is not uniform returns."""
        chosen = self.choose(batch_size)
        if not self._uniform:
            _require_drawn(self, chosen, batch_size)
        return chosen

    def sample(self, batch_size: int) -> Batch | WeightedBatch:
        """Draws a batch (see `choose`).

        Raises ValueError if the buffer is empty or, without replacement, holds fewer rows than a batch.
        """
        rows, weight = self.chosen(batch_size)
        batch = self._gather(rows)
        return batch if weight is None else batch.weighted(weight, rows)

    def stage(self, batch_size: int) -> None:
        """Does the host's half of `sample`: draws rows and copies them to device memory whose address does not change.

        `staged` does the device's half, which a captured CUDA graph can replay.
        """
        rows, weight = self.chosen(batch_size)
        is_first = not self._staged or len(self._staged[0]) != batch_size
        self._staged = self._fetch(rows, () if is_first else self._staged)
        if weight is not None:
            self._staged_weight.resize_(len(rows)).copy_(torch.from_numpy(weight))
            self._staged_index.resize_(len(rows)).copy_(torch.from_numpy(rows))

    def staged(self) -> Batch | WeightedBatch:
        """Does the device's half of `sample`: returns views of the staged rows; the next `stage` overwrites them."""
        assert self._staged, "stage(batch_size) comes first"
        batch = self._unpack(*self._staged)
        return WeightedBatch(*batch, self._staged_weight, self._staged_index) if len(self._staged_weight) else batch

    @property
    def generators(self) -> list[torch.Generator]:  # on the device; `staged` draws from them
        return []

    def _draw(self, batch_size: int) -> np.ndarray:
        """Draws row indices (B,) uniformly."""
        if not self.num_added:
            raise ValueError("nothing to sample: the replay buffer is empty")
        if self.with_replacement:
            return self._rng.integers(0, len(self), batch_size)
        return self._rng.choice(len(self), batch_size, replace=False, shuffle=False)

    def _gather(self, indices: np.ndarray) -> Batch:
        return self._unpack(*self._fetch(indices))

    def _fetch(self, indices: np.ndarray, memory: tuple[torch.Tensor, ...] = ()) -> tuple[torch.Tensor, ...]:
        """Copies all that a batch consists of to the device, into the memory of an earlier call if it is given."""
        return (self._send("rows", indices, *memory),)

    def _send(self, ring: str, indices: np.ndarray, to: torch.Tensor | None = None) -> torch.Tensor:
        """Returns rows of one of `rings` on the device, (len(indices), width); in `to`, if it is given."""
        rows = torch.from_numpy(self.rings[ring].rows.take(indices, axis=0))
        return rows.to(self.device) if to is None else to.copy_(rows)

    def _unpack(self, *parts: torch.Tensor) -> Batch:
        """Returns a batch whose tensors are views of packed rows (B, width), except images, which may be copied."""
        obs, action, reward, discount, next_obs = parts[0].split(self._widths, dim=1)
        if self._as_bytes:
            obs, next_obs = self._as_images(obs), self._as_images(next_obs)
        return Batch(obs, action, reward, next_obs, discount)

    def _as_images(self, columns: torch.Tensor) -> torch.Tensor:
        return columns.contiguous().view(torch.uint8)[:, : self._obs_dim].reshape(-1, *self._obs_shape)

    def stored(self, start: int, stop: int) -> Batch:
        """Returns copies of transitions [start, stop), counted from the first ever added, as a batch."""
        return self._unpack(torch.from_numpy(np.concatenate(list(self.chunks(start, stop)))))

    def state_dict(self) -> dict[str, Any]:
        """Returns the counts and the states of the random generator and of `sampling`; `chunks` yields the rows."""
        counts = {"num_added": self.num_added, "capacity": self.capacity, "row_width": self.row_width}
        state = {**counts, "rng": self._rng.bit_generator.state}
        return state | ({"sampling": self.sampling.state_dict()} if hasattr(self.sampling, "state_dict") else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned, after `put_chunk` has restored the rows."""
        saved = state["capacity"], state["row_width"]
        if saved != (self.capacity, self.row_width):
            raise ValueError(f"{saved[0]} rows of {saved[1]} do not fit {self.capacity} rows of {self.row_width}")
        self.num_added = require_count(state["num_added"], "num_added")
        self._rng.bit_generator.state = state["rng"]
        if self.num_added and "sampling" in state and hasattr(self.sampling, "load_state_dict"):
            self.sampling.load_state_dict(state["sampling"])


def _require_drawn(buffer: ReplayBuffer, chosen: Any, batch_size: int) -> None:
    """Raises UserError unless `chosen` is the places (B,) of stored rows, and their weights (B,) or None."""
    name, num_stored = f"{type(buffer.sampling or buffer).__name__}.choose", min(buffer.num_added, buffer.capacity)
    if not isinstance(chosen, tuple) or len(chosen) != 2:
        raise UserError(f"{name} returns a {type(chosen).__name__}; return places, weights or places, None")
    rows, weight = chosen
    for column, array in ("places", rows), ("weights", rows if weight is None else weight):
        if not isinstance(array, np.ndarray) or array.shape != (batch_size,):
            given = f"{type(array).__name__} {tuple(np.shape(array))}"
            raise UserError(f"{name}: {column} are {given}; a NumPy array ({batch_size},) is needed")
    if rows.dtype.kind not in "iu":
        raise UserError(f"{name} returns places of type {rows.dtype}; integers are needed")
    if rows.min() < 0 or rows.max() >= num_stored:
        raise UserError(f"{name} returns places {rows.min()} to {rows.max()}; {num_stored} rows are stored")
    if weight is None and hasattr(buffer, "update_priorities"):
        raise UserError(f"{name} returns no weights, as a buffer with update_priorities has to; return np.ones(B)")
    if weight is not None and not (weight.min() >= 0 and 0 < weight.max() < np.inf):  # false for nan
        raise UserError(f"{name}: weights are {weight.min():g} to {weight.max():g}; finite positive ones are needed")


def _row_width(obs_shape: tuple[int, ...], action_shape: tuple[int, ...]) -> tuple[int, int]:
    obs_dim = int(np.prod(obs_shape))
    obs_width = obs_dim if len(obs_shape) == 1 else -(-obs_dim // 4)  # four bytes to a float
    return obs_width, 2 * obs_width + int(np.prod(action_shape)) + 2


def nbytes(obs_shape: tuple[int, ...], action_shape: tuple[int, ...], capacity: int) -> int:
    """Returns the size of a full buffer's rows, in bytes."""
    return 4 * _row_width(obs_shape, action_shape)[1] * capacity


def require_memory(obs_shape: tuple[int, ...], action_shape: tuple[int, ...], capacity: int, cause: str = "") -> None:
    """Raises UserError if the rows of a full buffer exceed the free memory; `cause` begins the message."""
    needed, available = nbytes(obs_shape, action_shape, capacity), available_bytes()
    if needed > available:
        fits, cause = available * capacity // needed, cause or f"replay_buffer_capacity={capacity}"
        raise UserError(f"{cause}: {needed:,} bytes are needed, {available:,} are free; {fits} transitions would fit")
