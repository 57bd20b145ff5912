"""Replay buffers for a GPU: batches copied from pinned memory, or drawn from a mirror of the rows on the device.

In both the rows of `ReplayBuffer` stay the truth: checkpoints and additions know nothing of the device.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from replay_buffer import Batch, ReplayBuffer, Ring
from settings.types import Storage
from utils import UserError

MIRRORED_ROWS = 1024  # rows that go to the device in one copy
MIRRORED_BYTES = 2**25  # of rows that are large
WITHOUT_REPLACEMENT = (
    "replay_storage=device: it draws with replacement only; choose pinned or host, or sample_with_replacement=true"
)
SHARE_OF_FREE_MEMORY = 4  # `auto` mirrors the rows if they take at most one part in so many


class Staging:
    """Pinned host memory that rows pass through on their way to the device: two places, used in turn.

    A copy from pinned memory runs while the host goes on. A place is written again only when the copy from it is done:
    an event behind each copy says so. On a CPU a copy is done when it returns, and there is nothing to pin.

    Args:
        num_rows, width: the most rows that are sent at once, and their floats.
        device: where they go.
    """

    def __init__(self, num_rows: int, width: int, device: torch.device):
        self._on_gpu = device.type == "cuda"
        self._device = device
        self._places = [torch.empty(num_rows, width, pin_memory=self._on_gpu) for _ in range(2)]
        self._copied: list[Any] = [self._event() for _ in range(2)] if self._on_gpu else [None, None]
        self._turn = 0

    def send(self, fill: Callable[[np.ndarray], object], to: torch.Tensor) -> None:
        """Lets `fill` write rows (len(to), width) into host memory and copies them to `to` without waiting."""
        place, copied = self._places[self._turn][: len(to)], self._copied[self._turn]
        if copied is not None:
            copied.synchronize()  # returns at once unless the device is two copies behind
        fill(place.numpy())
        self._copy(place, to)
        if copied is not None:
            copied.record(torch.cuda.current_stream(self._device))
        self._turn = 1 - self._turn

    def _event(self) -> Any:
        return torch.cuda.Event()  # one that was never recorded counts as done

    def _copy(self, place: torch.Tensor, to: torch.Tensor) -> None:
        to.copy_(place, non_blocking=True)


class PinnedReplayBuffer(ReplayBuffer):
    """Gathers a batch into pinned memory, from where one asynchronous copy takes it to the device."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._staging: Staging | None = None
        self._staging_rows = 0

    def _gather(self, indices: np.ndarray) -> Batch:
        packed = torch.empty(len(indices), self._width, device=self.device)
        self._send(indices, packed)
        return self._unpack(packed)

    def _send(self, indices: np.ndarray, packed: torch.Tensor) -> None:
        if self._staging is None or self._staging_rows < len(indices):
            self._staging_rows = len(indices)
            self._staging = Staging(self._staging_rows, self._width, self.device)
        # mode: numpy gathers straight into `out` only where it need not check the indices; ours are in range.
        self._staging.send(lambda rows: self._rows.take(indices, axis=0, out=rows, mode="clip"), packed)


class Mirror:
    """A ring's rows on the device, which follow those of the host: new rows are sent in as few copies as they take.

    Args:
        ring: on the host.
        device: of the mirror.
    """

    def __init__(self, ring: Ring, device: torch.device):
        self._ring = ring
        self.rows = torch.empty(ring.capacity, ring.row_width, device=device)
        self._count = 0  # of the ring's num_added
        at_once = min(MIRRORED_ROWS, ring.capacity, max(1, MIRRORED_BYTES // (4 * ring.row_width)))
        self._staging = Staging(at_once, ring.row_width, device)
        self._at_once = at_once

    def follow(self) -> None:
        """Sends the rows that were added since the last time."""
        ring = self._ring
        start = max(self._count, ring.num_added - ring.capacity)
        while start < ring.num_added:
            first = start % ring.capacity
            count = min(ring.num_added - start, ring.capacity - first, self._at_once)
            place = slice(first, first + count)
            self._staging.send(partial(_copy, ring.rows[place]), self.rows[place])
            start += count
        self._count = ring.num_added

    def forget(self) -> None:
        """From here on all of the ring's rows are new."""
        self._count = 0


class DeviceReplayBuffer(ReplayBuffer):
    """Draws batches on the device, from a mirror of the rows there.

    New rows are sent when the next batch is asked for, all in one copy (two where the ring begins anew), so
    `add` costs what it costs on the host. Drawing is device operations only, on a length that is kept on the device:
    a captured CUDA graph follows the growing buffer. Batches are drawn with replacement.

    Raises:
        UserError: if batches are to be drawn without replacement, or as a subclass chooses, which takes the host.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if not self._with_replacement:
            raise UserError(WITHOUT_REPLACEMENT)
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

    @property
    def generators(self) -> list[torch.Generator]:
        return [self._generator]

    def sample(self, batch_size: int) -> Batch:
        self.stage(batch_size)
        return self.staged()

    def stage(self, batch_size: int) -> None:
        """Sends the rows that were added since the last time."""
        if not self.num_added:
            raise ValueError("nothing to sample: the replay buffer is empty")
        self._batch_size = batch_size
        self._mirrored.follow()
        if len(self) != self._known_length:
            self._length.fill_(len(self))
            self._known_length = len(self)

    def staged(self) -> Batch:
        """A batch, drawn and gathered on the device."""
        return self._unpack(self._mirror.index_select(0, self._drawn()))

    def _drawn(self) -> torch.Tensor:
        """As many whole numbers below the length as a batch has rows."""
        # In float64, so that each of up to 2^53 rows is as likely as the next and none lies beyond the last.
        uniform = torch.rand(self._batch_size, dtype=torch.float64, device=self.device, generator=self._generator)
        return (uniform * self._length).long()

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"device_generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As ReplayBuffer's; of a buffer that drew on the host, the rows continue and the draws begin anew."""
        super().load_state_dict(state)
        if "device_generator" in state:
            self._generator.set_state(state["device_generator"].cpu())
        self._mirrored.forget()


def _copy(rows: np.ndarray, to: np.ndarray) -> None:
    to[:] = rows


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
    asked: int,
) -> str:
    """Which of STORAGES `replay_storage` means here; `auto` is chosen by what the device has free.

    Args:
        capacity: of the buffer.
        asked: bytes that it takes when it is full.

    Raises:
        UserError: for a storage that cannot be had with this device or these keys.
    """
    on_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else 0
    if storage == "auto":
        if not on_gpu:
            return "host"
        return "device" if with_replacement and asked * SHARE_OF_FREE_MEMORY <= free else "pinned"
    if storage == "pinned" and not on_gpu:
        raise UserError(f"replay_storage=pinned: memory is pinned for a GPU, and device={device}; choose auto or host")
    if storage == "device" and on_gpu and asked > free:
        raise UserError(
            f"replay_storage=device: replay_buffer_capacity={capacity} asks for {asked:,} bytes and the GPU has "
            f"{free:,} free; choose pinned"
        )
    if storage == "device" and not with_replacement:
        raise UserError(WITHOUT_REPLACEMENT)
    return storage
