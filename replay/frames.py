"""Replay buffers of frames, which are images, vectors or both: each is stored once, and a row holds their places.

With stacks of three, a transition has six frames, of which five are already stored. They are recognised by comparing
their content with the newest frames, so the buffer need not know about episodes, environments or n-step rows.
"""

import zlib
from typing import Any

import numpy as np
import torch

from replay.adding import add_each
from replay.device import DeviceReplayBuffer, Mirror, PinnedReplayBuffer
from replay_buffer import Batch, ReplayBuffer, SamplingFactory
from replay_buffer import nbytes as bytes_of_rows
from settings.obs_spec import ObsSpec
from settings.operating_system import available_bytes
from settings.types import NonNegativeInt, PositiveInt
from utils import Ring, UserError, require_count

SEARCHED = 4096  # newest frames that a new frame is compared with; at most half the ring
SPARE = 32  # one spare frame per 32 transitions, as an episode has one more frame than transitions


class FrameBuffer(ReplayBuffer):
    """Stores transitions in one ring and their frames in another.

    A row is a ReplayBuffer's row in which the observations are replaced by their frames' places in the ring, as int32.
    If many episodes are shorter than 32 transitions, the ring of frames fills before the ring of rows; rows with an
    overwritten frame are not drawn.

    Args:
        obs_shape: shape of a stack: (C, H, W), or the shape of `obs_spec`.
        action_shape, device, seed, with_replacement, sampling: see ReplayBuffer.
        capacity: maximum number of transitions.
        frame_stack: number of frames in a stack, of C / frame_stack channels each.
        obs_spec: the parts of a stack; None means images of `obs_shape`, stacks of `frame_stack` frames.
        searched: number of newest frames that a new frame is compared with; at most half the ring is searched.

    Raises:
        UserError: if the frames would not fit into memory.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        action_shape: tuple[int, ...],
        capacity: PositiveInt,
        device: torch.device,
        frame_stack: PositiveInt = 1,
        seed: NonNegativeInt = 0,
        with_replacement: bool = True,
        sampling: SamplingFactory | None = None,
        obs_spec: ObsSpec | None = None,
        searched: PositiveInt = SEARCHED,
    ):
        self.obs_spec = spec = obs_spec or ObsSpec.of_shape(tuple(obs_shape), frame_stack)
        require_memory(spec, action_shape, capacity)
        self._stack = spec.frame_stack
        self._frame_numbers = spec.vector_dim // self._stack  # in a frame's vector, which precedes its image
        count, width, self._frame_bytes = _sizes(spec, capacity)
        self.frames = Ring(count, width)
        self._frame_memory = self.frames.rows.view(np.uint8)[:, : self._frame_bytes]
        self._newest_row = np.full(count, -1)  # place of a frame -> number of the newest row that uses it
        self._searched = min(searched, count // 2)
        self._recent: dict[int, int] = {}  # checksum -> number, of the newest frames
        self._first_row = 0  # number of the oldest row whose frames are all stored
        super().__init__((self._stack,), action_shape, capacity, device, seed, with_replacement, sampling)

    def __len__(self) -> int:
        return min(self.num_added - self._first_row, self.capacity)

    @property
    def rings(self) -> dict[str, Ring]:
        return {"rows": self, "frames": self.frames}

    def spans(self, state: dict[str, Any]) -> dict[str, tuple[int, int]]:
        (first, stop), num_frames = super().spans(state)["rows"], require_count(state["num_frames"], "num_frames")
        frames = max(0, num_frames - self.frames.capacity), num_frames
        return {"rows": (max(first, require_count(state["first_row"], "first_row")), stop), "frames": frames}

    def add(self, *transition: Any, **named: Any) -> None:
        """See ReplayBuffer.add; obs and next_obs are stacks (see ObsSpec)."""
        super().add(*transition, **named)
        newest = self.num_added - 1
        row = newest % self.capacity
        self._newest_row[self._places(self.rows[row : row + 1])] = newest

    def add_batch(self, *columns: Any) -> None:
        add_each(self, *columns)

    def _put_obs(self, rows: np.ndarray, start: int, obs: np.ndarray) -> None:
        frames = self._frames_of(np.ascontiguousarray(obs, self.obs_spec.dtype))
        rows.view(np.int32)[:, start : start + self._stack] = [self._place(frame) for frame in frames]

    def _frames_of(self, obs: np.ndarray) -> np.ndarray:
        """Returns a stack's frames, (frame_stack, frame_bytes), uint8: in each row the vector, then the image."""
        spec = self.obs_spec
        if not spec.vector_dim:
            return obs.reshape(self._stack, -1)
        images, vectors = spec.unpack(obs[None], np.float32) if spec.image else (np.zeros(0, np.uint8), obs)
        by_frame = np.ascontiguousarray(vectors.reshape(-1, self._stack).T).view(np.uint8)
        return np.concatenate([by_frame, images.reshape(self._stack, -1)], axis=1)

    def _place(self, frame: np.ndarray) -> int:
        """Returns the place of a frame in the ring; stores the frame first if it is not among the newest ones."""
        checksum = _checksum(frame)
        number = self._recent.get(checksum)
        if number is None or not np.array_equal(self._frame_memory[number % self.frames.capacity], frame):
            number = self._append(frame, checksum)
        return number % self.frames.capacity

    def _append(self, frame: np.ndarray, checksum: int) -> int:
        number, count = self.frames.num_added, self.frames.capacity
        place = number % count
        if number >= count:  # rows that use the overwritten frame can no longer be drawn
            self._first_row = max(self._first_row, int(self._newest_row[place]) + 1)
        self._frame_memory[place] = frame
        self._newest_row[place] = -1
        self.frames.num_added += 1
        self._recent[checksum] = number
        # A frame that is no longer among the newest ones is dropped from the search.
        leaving = number - self._searched
        if leaving >= 0:
            checksum = _checksum(self._frame_memory[leaving % count])
            if self._recent.get(checksum) == leaving:
                del self._recent[checksum]
        return number

    def _places(self, rows: Any) -> Any:
        """Returns the places of the frames of rows (B, width), as (2, B, frame_stack): of obs, then of next_obs."""
        at, stack = self._next_obs_at, self._stack
        if isinstance(rows, torch.Tensor):
            columns = torch.stack([rows[:, :stack], rows[:, at : at + stack]])
            return columns.view(torch.int32)
        return np.stack([rows[:, :stack], rows[:, at : at + stack]]).view(np.int32)

    def _unpack(self, *parts: torch.Tensor) -> Batch:
        """Makes a batch from packed rows (B, width) and their frames (2 * B * frame_stack, width)."""
        packed, frames = parts
        _, action, reward, discount, _ = packed.split(self._widths, dim=1)
        obs, next_obs = self._stacks(frames).unflatten(0, (2, -1))
        return Batch(obs, action, reward, next_obs, discount)

    def _stacks(self, frames: torch.Tensor) -> torch.Tensor:
        """Joins frames (N * frame_stack, width) to stacks (N, *obs_shape)."""
        spec, numbers = self.obs_spec, self._frame_numbers
        count = len(frames) // self._stack
        vectors = frames[:, :numbers].reshape(count, self._stack, numbers).transpose(1, 2).reshape(count, -1)
        if not spec.image:
            return vectors
        images = frames[:, numbers:].view(torch.uint8)[:, : self._frame_bytes - 4 * numbers]
        if not numbers:
            return images.reshape(count, *spec.image)
        padding = images.new_zeros(count, 4 * spec.vector_at - spec.image_bytes)
        return torch.cat([images.reshape(count, -1), padding, vectors.view(torch.uint8)], dim=1)

    def _draw(self, batch_size: int) -> np.ndarray:
        drawn = super()._draw(batch_size)  # counted from the oldest row
        return (self.num_added - len(self) + drawn) % self.capacity

    def _fetch(self, indices: np.ndarray, memory: tuple[torch.Tensor, ...] = ()) -> tuple[torch.Tensor, ...]:
        places = self._places(self.rows.take(indices, axis=0)).ravel()
        packed, frames = memory or (None, None)
        return self._send("rows", indices, packed), self._send("frames", places, frames)

    def state_dict(self) -> dict[str, Any]:
        # Not `_first_row`: it can lag behind the ring of rows, and would differ in a resumed run.
        counts = {"num_frames": self.frames.num_added, "first_row": self.num_added - len(self)}
        return super().state_dict() | counts | {"frame_bytes": self._frame_bytes, "frames": self.frames.capacity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned, after `put_chunk` has restored rows and frames."""
        saved, ours = (state["frames"], state["frame_bytes"]), (self.frames.capacity, self._frame_bytes)
        if saved != ours:
            raise ValueError(f"{saved[0]} frames of {saved[1]} bytes do not fit {ours[0]} frames of {ours[1]}")
        super().load_state_dict(state)
        # Counts.
        spans = self.spans(state)
        if not self.num_added:  # the checkpoint left the buffer out
            spans = dict.fromkeys(spans, (0, 0))
        (self._first_row, stop), (oldest, self.frames.num_added) = spans["rows"], spans["frames"]
        # Which rows use which frames. The rows may be forged, so the places are checked to lie in the ring.
        rows = np.arange(self._first_row, stop)
        places = self._places(self.rows[rows % self.capacity])
        if places.size and not 0 <= places.min() <= places.max() < self.frames.capacity:
            raise ValueError("rows name frames outside the ring")
        self._newest_row.fill(-1)
        np.maximum.at(self._newest_row, places, np.broadcast_to(rows[:, None], places.shape))
        # The newest frames, by checksum.
        self._recent = {}
        for number in range(max(oldest, self.frames.num_added - self._searched), self.frames.num_added):
            self._recent[_checksum(self._frame_memory[number % self.frames.capacity])] = number


class PinnedFrameBuffer(FrameBuffer, PinnedReplayBuffer):
    """Gathers a batch and its frames into pinned memory and sends them to the device in two asynchronous copies."""


class DeviceFrameBuffer(FrameBuffer, DeviceReplayBuffer):
    """Draws batches and stacks frames on the device, from mirrors of rows and frames there."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._mirrored_frames = Mirror(self.frames, self.device)
        self._oldest = torch.zeros((), dtype=torch.int64, device=self.device)  # place of the oldest row to draw
        self._known_oldest = 0

    def stage(self, batch_size: int) -> None:
        super().stage(batch_size)
        self._mirrored_frames.follow()
        oldest = (self.num_added - len(self)) % self.capacity
        if oldest != self._known_oldest:
            self._oldest.fill_(oldest)
            self._known_oldest = oldest

    def staged(self) -> Batch:
        packed = self._mirror.index_select(0, (self._drawn() + self._oldest) % self.capacity)
        return self._unpack(packed, self._mirrored_frames.rows.index_select(0, self._places(packed).flatten()))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._mirrored_frames.num_followed = 0


STORAGES: dict[str, type[ReplayBuffer]] = {
    "host": FrameBuffer,
    "pinned": PinnedFrameBuffer,
    "device": DeviceFrameBuffer,
}


def _checksum(frame: np.ndarray) -> int:
    return zlib.crc32(frame.data)


def _sizes(obs: ObsSpec, capacity: int) -> tuple[int, int, int]:
    """Returns the ring's capacity in frames, and a frame's size in floats and in bytes."""
    frame_bytes = (obs.image_bytes + 4 * obs.vector_dim) // obs.frame_stack
    return capacity + max(64, capacity // SPARE), -(-frame_bytes // 4), frame_bytes


def nbytes(obs: ObsSpec, action_shape: tuple[int, ...], capacity: int) -> int:
    """Returns the size of a full buffer, in bytes."""
    count, width, _ = _sizes(obs, capacity)
    index_bytes = np.dtype(int).itemsize
    return count * (4 * width + index_bytes) + bytes_of_rows((obs.frame_stack,), action_shape, capacity)


def require_memory(obs: ObsSpec, action_shape: tuple[int, ...], capacity: int) -> None:
    """Raises UserError if a full buffer exceeds the free memory."""
    needed, available = nbytes(obs, action_shape, capacity), available_bytes()
    if needed > available:
        fits = available * capacity // needed
        frame = f"{obs.image[1]}x{obs.image[2]} pixels" if obs.image else f"{obs.vector_dim // obs.frame_stack} numbers"
        raise UserError(
            f"replay_buffer_capacity={capacity}: {needed:,} bytes are needed for frames of {frame}, {available:,} are "
            f"free; {fits} transitions would fit"
        )
