"""Replay buffers whose batches are drawn and gathered on the device, from a copy of the rows there.

Rows added as arrays stay authoritative on the host; rows added as tensors are on the device, and checkpoints copy them.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from replay_buffer import Batch, ReplayBuffer, Ring
from settings.obs_spec import ObsSpec
from settings.types import Storage
from utils import UserError, restore_generator

SPARE = 32  # one spare frame per 32 transitions, as an episode has one more frame than transitions
SHARE_OF_FREE_MEMORY = 4  # `auto` chooses the device for rows that take at most 1/4 of its free memory


class DeviceRing(Ring):
    """A ring with a copy of its rows on the device, which `follow` brings up to date.

    Attributes:
        on_device: the copy, (capacity, row_width).
        num_sent: `num_added` when the copy was last up to date; 0 makes the next `follow` send all rows.
        is_ahead: whether the copy has rows that the host lacks.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.on_device = torch.empty(self.capacity, self.row_width, device=self.device)
        self.num_sent, self.is_ahead = 0, False

    def follow(self) -> None:
        """Sends the rows that were added since the last call, in as few copies as possible."""
        start = max(self.num_sent, self.num_added - self.capacity)
        for chunk in super().chunks(start, self.num_added):
            first, rows = start % self.capacity, torch.from_numpy(chunk)
            rows = rows.pin_memory() if self.device.type == "cuda" else rows  # so that nothing waits for the copy
            self.on_device[first : first + len(rows)].copy_(rows, non_blocking=True)
            start += len(rows)
        self.num_sent = self.num_added

    def send(self, places: Any) -> torch.Tensor:
        return self.on_device.index_select(0, places)

    def chunks(self, start: int, stop: int) -> Iterator[np.ndarray]:
        if self.is_ahead:
            self.follow()
        for rows in super().chunks(start, stop):
            first = start % self.capacity
            start += len(rows)
            yield self.on_device[first : first + len(rows)].cpu().numpy() if self.is_ahead else rows


class DeviceReplayBuffer(DeviceRing, ReplayBuffer):
    """Draws batches on the device, uniformly and with replacement.

    New rows are sent when the next batch is drawn, so `add` costs no more than on the host. Rows that `add_batch` gets
    as tensors are written on the device directly. Drawing uses only device operations, and the buffer's length is a
    tensor on the device, so a captured CUDA graph sees it grow.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if not self.with_replacement or self.sampling is not None:
            raise UserError("replay_storage=device: it draws uniformly and with replacement only; choose host")
        self._length = torch.zeros((), dtype=torch.float64, device=self.device)
        self._generator = torch.Generator(self.device).manual_seed(int(self._rng.integers(2**63)))
        self.generators = [self._generator]
        self._batch_size = 0

    def add_batch(self, *columns: Any) -> None:
        if not isinstance(columns[0], torch.Tensor):
            super().add_batch(*columns)
            return
        self.follow()
        rows = torch.zeros(len(columns[0]), self.row_width, device=self.device)
        self._write(rows, tuple(torch.as_tensor(each).to(self.device, non_blocking=True) for each in columns))
        self.num_added += len(rows)
        newest = rows[-self.capacity :]
        numbers = torch.arange(self.num_added - len(newest), self.num_added, device=self.device)
        self.on_device.index_copy_(0, numbers % self.capacity, newest)
        self.num_sent, self.is_ahead = self.num_added, True

    def sample(self, batch_size: int) -> Batch:
        self.stage(batch_size)
        return self.staged()

    def stage(self, batch_size: int) -> None:
        if not self.num_added:
            raise ValueError("nothing to sample: the replay buffer is empty")
        for ring in self.rings.values():
            ring.follow()
        self._batch_size = batch_size
        self._length.fill_(len(self))

    def staged(self) -> Batch:
        return self.unpack(*self.take(self._draw()))

    def _draw(self) -> torch.Tensor:
        # In float64, so that up to 2^53 rows are equally likely and none lies beyond the last.
        uniform = torch.rand(self._batch_size, dtype=torch.float64, device=self.device, generator=self._generator)
        return (uniform * self._length).long()

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"device_generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if "device_generator" in state:
            restore_generator(self._generator, state["device_generator"])
        for ring in self.rings.values():
            ring.num_sent, ring.is_ahead = 0, False


STORAGES: dict[str, type[ReplayBuffer]] = {"host": ReplayBuffer, "device": DeviceReplayBuffer}


def fit_storage(
    storage: Storage,
    device: torch.device,
    is_uniform: bool,
    obs: ObsSpec,
    action_shape: tuple[int, ...],
    capacity: int,
) -> str:
    """Turns `replay_storage` into a key of STORAGES; `auto` depends on the free memory of the device.

    `is_uniform` says whether all rows are equally likely, in each place of a batch.
    """
    if storage != "auto":
        return storage
    if device.type != "cuda" or not is_uniform:
        return "host"
    num_bytes = nbytes(obs, action_shape, capacity)
    return "device" if num_bytes * SHARE_OF_FREE_MEMORY <= torch.cuda.mem_get_info(device)[0] else "host"


def nbytes(obs: ObsSpec, action_shape: tuple[int, ...], capacity: int) -> int:
    """Returns the size of the rings of a full buffer, in bytes; a ReplayBuffer's if it needs no frames."""
    in_row = obs.frame_stack if obs.has_frames else obs.width
    frames = 4 * obs.width // obs.frame_stack * (1 + 1 / SPARE) if obs.has_frames else 0
    return int(capacity * (4 * (2 * in_row + math.prod(action_shape) + 2) + frames))
