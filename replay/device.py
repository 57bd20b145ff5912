"""Replay buffers for a GPU: batches copied from pinned memory, or drawn from a mirror of the rows on the device.

Rows added as arrays stay authoritative on the host; rows added as tensors are on the device, and checkpoints copy them.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from replay_buffer import Batch, ReplayBuffer
from settings.types import Storage
from utils import Ring, UserError, restore_generator

MIRRORED_ROWS = 1024  # maximum rows per copy to the device
MIRRORED_BYTES = 2**25  # maximum bytes per copy, for large rows
SHARE_OF_FREE_MEMORY = 4  # `auto` mirrors rows that take at most 1/4 of the device's free memory


class Staging:
    """Copies rows to the device through two buffers of pinned host memory, used alternately.

    A copy from pinned memory is asynchronous. An event recorded after each copy marks when its buffer may be written
    again. On a CPU copies are synchronous, and no memory is pinned.
    """

    def __init__(self, num_rows: int, width: int, device: torch.device):
        on_gpu = device.type == "cuda"
        self.num_rows = num_rows
        self._device = device
        self._buffers = [torch.empty(num_rows, width, pin_memory=on_gpu) for _ in range(2)]
        # An event's `synchronize` returns at once before its first record.
        self._copied: list[Any] = [torch.cuda.Event() if on_gpu else None for _ in range(2)]
        self._turn = 0

    def send(self, fill: Callable[[np.ndarray], object], to: torch.Tensor) -> None:
        """Calls `fill` to write rows (len(to), width) into pinned memory, and starts copying them to `to`."""
        buffer, copied = self._buffers[self._turn][: len(to)], self._copied[self._turn]
        if copied is not None:
            copied.synchronize()  # returns at once unless the device is two copies behind
        fill(buffer.numpy())
        self._copy(buffer, to)
        if copied is not None:
            copied.record(torch.cuda.current_stream(self._device))
        self._turn = 1 - self._turn

    def _copy(self, buffer: torch.Tensor, to: torch.Tensor) -> None:
        to.copy_(buffer, non_blocking=True)


class PinnedReplayBuffer(ReplayBuffer):
    """Gathers the rows of a batch into pinned memory and sends them to the device in one asynchronous copy."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._staging: dict[str, Staging] = {}  # one for each of `rings`

    def _send(self, ring: str, indices: np.ndarray, to: torch.Tensor | None = None) -> torch.Tensor:
        staging, rows = self._staging.get(ring), self.rings[ring].rows
        if to is None:
            to = torch.empty(len(indices), rows.shape[1], device=self.device)
        if staging is None or staging.num_rows < len(to):
            staging = self._staging[ring] = Staging(len(to), rows.shape[1], self.device)
        # mode="clip": numpy gathers into `out` without a temporary only if it need not check the indices.
        staging.send(lambda out: rows.take(indices, axis=0, out=out, mode="clip"), to)
        return to


class Mirror:
    """A copy of a ring's rows on the device, brought up to date by `follow`.

    Attributes:
        rows: the copy, (capacity, row_width).
        num_followed: the ring's `num_added` when the copy was last up to date; 0 makes the next `follow` send all rows.
    """

    def __init__(self, ring: Ring, device: torch.device):
        self._ring = ring
        self.rows = torch.empty(ring.capacity, ring.row_width, device=device)
        self.num_followed = 0
        at_once = min(MIRRORED_ROWS, ring.capacity, max(1, MIRRORED_BYTES // (4 * ring.row_width)))
        self._staging = Staging(at_once, ring.row_width, device)

    def follow(self) -> None:
        """Sends the rows that were added since the last call, in as few copies as possible."""
        ring = self._ring
        start = max(self.num_followed, ring.num_added - ring.capacity)
        while start < ring.num_added:
            first = start % ring.capacity
            count = min(ring.num_added - start, ring.capacity - first, self._staging.num_rows)
            rows = slice(first, first + count)
            self._staging.send(partial(np.copyto, src=ring.rows[rows]), self.rows[rows])
            start += count
        self.num_followed = ring.num_added


class DeviceReplayBuffer(ReplayBuffer):
    """Draws batches on the device, with replacement, from a mirror of the rows.

    New rows are sent when the next batch is drawn, so `add` costs no more than on the host. Rows that `add_batch` gets
    as tensors are written into the mirror directly and copied to the host only for a checkpoint. Drawing uses only
    device operations, and the buffer's length is a tensor on the device, so a captured CUDA graph sees it grow.

    Raises:
        UserError: for batches without replacement, for a `sampling`, and for a subclass that overrides `choose`: all of
            these draw on the host.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        _require_device_draws(self.with_replacement, not self.sampling)
        if type(self).choose is not ReplayBuffer.choose:
            raise UserError(
                f"{type(self).__name__}: a DeviceReplayBuffer draws its rows on the device and never calls choose; "
                "inherit from replay_buffer.ReplayBuffer, or override staged"
            )
        self._mirrored = Mirror(self, self.device)
        self._mirror = self._mirrored.rows
        self._length = torch.zeros((), dtype=torch.float64, device=self.device)
        self._generator = torch.Generator(self.device).manual_seed(int(self._rng.integers(2**63)))
        self._known_length = 0
        self._batch_size = 0
        self._is_ahead = False  # whether the mirror has rows that the host lacks

    def add_batch(self, *columns: Any) -> None:
        if not isinstance(columns[0], torch.Tensor):
            super().add_batch(*columns)
            return
        self._mirrored.follow()
        on_device = (torch.as_tensor(column).to(self.device, non_blocking=True) for column in columns)
        self._add_to(self._mirror, tuple(on_device))
        self._mirrored.num_followed = self.num_added
        self._is_ahead = True

    def chunks(self, start: int, stop: int) -> Iterator[np.ndarray]:
        if self._is_ahead:
            self._mirrored.follow()
        for rows in super().chunks(start, stop):
            first = start % self.capacity
            start += len(rows)
            yield self._mirror[first : first + len(rows)].cpu().numpy() if self._is_ahead else rows

    @property
    def generators(self) -> list[torch.Generator]:
        return [self._generator]

    def sample(self, batch_size: int) -> Batch:
        self.stage(batch_size)
        return self.staged()

    def stage(self, batch_size: int) -> None:
        """Sends the rows that were added since the last batch."""
        if not self.num_added:
            raise ValueError("nothing to sample: the replay buffer is empty")
        self._batch_size = batch_size
        self._mirrored.follow()
        if len(self) != self._known_length:
            self._length.fill_(len(self))
            self._known_length = len(self)

    def staged(self) -> Batch:
        """Draws and gathers a batch on the device."""
        return self._unpack(self._mirror.index_select(0, self._drawn()))

    def _drawn(self) -> torch.Tensor:
        """Draws row numbers (B,), counted from the oldest row."""
        # In float64, so that up to 2^53 rows are equally likely and none lies beyond the last.
        uniform = torch.rand(self._batch_size, dtype=torch.float64, device=self.device, generator=self._generator)
        return (uniform * self._length).long()

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"device_generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a `state_dict`; one from a buffer that drew on the host leaves the device's generator as it is."""
        super().load_state_dict(state)
        if "device_generator" in state:
            restore_generator(self._generator, state["device_generator"])
        self._mirrored.num_followed = 0
        self._is_ahead = False


STORAGES: dict[str, type[ReplayBuffer]] = {
    "host": ReplayBuffer,
    "pinned": PinnedReplayBuffer,
    "device": DeviceReplayBuffer,
}


def choose_storage(
    storage: Storage,
    device: torch.device,
    with_replacement: bool,
    capacity: int,
    needed: int,
    uniform: bool = True,
) -> str:
    """Turns `replay_storage` into a key of STORAGES; `auto` depends on the free memory of the device.

    Args:
        with_replacement, uniform: how rows are drawn.
        capacity: maximum number of transitions.
        needed: size of a full buffer, in bytes.

    Raises:
        UserError: for a storage that does not work with this device or the other settings.
    """
    on_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else 0
    if storage == "auto":
        if not on_gpu:
            return "host"
        return "device" if with_replacement and uniform and needed * SHARE_OF_FREE_MEMORY <= free else "pinned"
    if storage == "pinned" and not on_gpu:
        raise UserError(f"replay_storage=pinned: memory is pinned for a GPU, and device={device}; choose auto or host")
    if storage == "device" and on_gpu and needed > free:
        raise UserError(
            f"replay_storage=device: replay_buffer_capacity={capacity} needs {needed:,} bytes and the GPU has "
            f"{free:,} free; choose pinned"
        )
    if storage == "device":
        _require_device_draws(with_replacement, uniform)
    return storage


def _require_device_draws(with_replacement: bool, uniform: bool) -> None:
    """Raises UserError for batches that cannot be drawn on the device."""
    other = "replay_storage=device: it draws {}; choose pinned or host, or {}"
    if not with_replacement:
        raise UserError(other.format("with replacement only", "sample_with_replacement=true"))
    if not uniform:
        raise UserError(other.format("uniformly only", "replay_buffer=uniform"))
