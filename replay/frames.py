"""Replay buffers of frames, which are images, vectors or both: each is stored once, and a row holds their places.

With stacks of three, a transition has six frames, of which five are already stored. They are recognised by comparing
their content with the newest frames, so the buffer need not know about episodes, environments or n-step rows.
"""

import zlib
from typing import Any

import numpy as np
import torch

from replay.device import SPARE, DeviceReplayBuffer, DeviceRing
from replay.n_step import add_each
from replay_buffer import ReplayBuffer, Ring
from settings.obs_spec import ObsSpec
from settings.types import Factory, NonNegativeInt, PositiveInt

SEARCHED = 4096  # newest frames that a new frame is compared with; at most half the ring


class FrameBuffer(ReplayBuffer):
    """Stores transitions in one ring and their frames in another.

    A row is a ReplayBuffer's row in which the observations are replaced by their frames' places in the ring, as int32.
    If many episodes are shorter than 32 transitions, the ring of frames fills before the ring of rows; rows with an
    overwritten frame are not drawn.

    Args: see ReplayBuffer, and
        obs_shape: shape of a stack: (C, H, W), or the shape of `obs_spec`.
        obs_spec: the parts of a stack, with its number of frames; None means single images.
        searched: number of newest frames that a new frame is compared with; at most half the ring is searched.
    """

    ring_kind: type[Ring] = Ring  # of the frames

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        action_shape: tuple[int, ...],
        capacity: PositiveInt,
        device: torch.device,
        seed: NonNegativeInt = 0,
        with_replacement: bool = True,
        sampling: Factory | None = None,
        obs_spec: ObsSpec | None = None,
        searched: PositiveInt = SEARCHED,
    ):
        self.obs_spec = spec = obs_spec or ObsSpec.of_shape(tuple(obs_shape))
        self._stack = spec.frame_stack
        self._frame_numbers = spec.vector_dim // self._stack  # in a frame's vector, which precedes its image
        self._frame_bytes = (spec.image_bytes + 4 * spec.vector_dim) // self._stack
        count = capacity + max(64, capacity // SPARE)
        self.frames = self.ring_kind(count, -(-self._frame_bytes // 4), device)
        self._frame_memory = self.frames.rows.view(np.uint8)[:, : self._frame_bytes]
        self._newest_row = np.full(count, -1)  # place of a frame -> number of the newest row that uses it
        self._searched = min(searched, count // 2)
        self._recent: dict[int, int] = {}  # checksum -> number, of the newest frames
        self._first_row = 0  # number of the oldest row whose frames are all stored
        super().__init__((self._stack,), action_shape, capacity, device, seed, with_replacement, sampling)

    def __len__(self) -> int:
        return min(self.num_added - self._first_row, self.capacity)

    @property
    def rings(self) -> dict[str, Any]:
        return {"rows": self, "frames": self.frames}

    def add(self, obs: Any, action: Any, reward: Any, next_obs: Any, *rest: Any, **named: Any) -> None:
        stacks = (self._frames_of(np.ascontiguousarray(stack, self.obs_spec.dtype)) for stack in (obs, next_obs))
        places = np.array([[self._place(frame) for frame in stack] for stack in stacks], np.int32)
        super().add(places[0].view(np.float32), action, reward, places[1].view(np.float32), *rest, **named)
        self._newest_row[places] = self.num_added - 1

    def add_batch(self, *columns: Any) -> None:
        add_each(self, *columns)

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
        checksum = zlib.crc32(frame.data)
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
            checksum = zlib.crc32(self._frame_memory[leaving % count].data)
            if self._recent.get(checksum) == leaving:
                del self._recent[checksum]
        return number

    def choose(self, batch_size: int) -> tuple[np.ndarray, np.ndarray | None]:
        places, weight = super().choose(batch_size)
        if self.sampling is None:  # counted from the oldest row
            places = (self.num_added - len(self) + places) % self.capacity
        return places, weight

    def take(self, places: Any, weight: np.ndarray | None = None) -> tuple[torch.Tensor, ...]:
        rows, *weighted = super().take(places, weight)
        # Rows of the host have their frames looked up on the host, so that nothing waits for a GPU.
        found = rows if isinstance(places, torch.Tensor) else torch.from_numpy(self.rows[places])
        return rows, self.frames.send(self._places(found).flatten()), *weighted

    def _places(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns the places of the frames of rows (B, width), as (2, B, frame_stack): of obs, then of next_obs."""
        at, stack = self._next_obs_at, self._stack
        return torch.stack([rows[:, :stack], rows[:, at : at + stack]]).view(torch.int32)

    def unpack(self, rows: torch.Tensor, *frames_and_weighted: torch.Tensor) -> Any:
        frames, *weighted = frames_and_weighted
        obs, next_obs = self._stacks(frames).unflatten(0, (2, -1))
        return super().unpack(rows, *weighted)._replace(obs=obs, next_obs=next_obs)

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

    def state_dict(self) -> dict[str, Any]:
        # Not `_first_row`: it can lag behind the ring of rows, and would differ in a resumed run.
        counts = {"num_frames": self.frames.num_added, "first_row": self.num_added - len(self)}
        return super().state_dict() | counts

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._first_row, self.frames.num_added = state["first_row"], state["num_frames"]
        numbers = np.arange(self._first_row, self.num_added)
        places = self._places(torch.from_numpy(self.rows[numbers % self.capacity])).numpy()
        self._newest_row.fill(-1)
        np.maximum.at(self._newest_row, places, np.broadcast_to(numbers[:, None], places.shape))
        stop, count = self.frames.num_added, self.frames.capacity
        newest = range(max(0, stop - self._searched), stop)
        self._recent = {zlib.crc32(self._frame_memory[number % count].data): number for number in newest}


class DeviceFrameBuffer(FrameBuffer, DeviceReplayBuffer):
    """Draws batches and stacks frames on the device, from copies of rows and frames there."""

    ring_kind = DeviceRing

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._oldest = torch.zeros((), dtype=torch.int64, device=self.device)  # place of the oldest row to draw

    def stage(self, batch_size: int) -> None:
        super().stage(batch_size)
        self._oldest.fill_((self.num_added - len(self)) % self.capacity)

    def _draw(self) -> torch.Tensor:
        return (super()._draw() + self._oldest) % self.capacity


STORAGES: dict[str, type[ReplayBuffer]] = {"host": FrameBuffer, "device": DeviceFrameBuffer}
