"""Frames that are stored once, and the stacks made of them, compared with a list of what was added."""

from collections import deque
from itertools import pairwise
from typing import Any

import composed
import numpy as np
import pytest
import torch
from same_run import same

from replay.frames import STORAGES, FrameBuffer, nbytes
from replay.n_step import NStep
from run.agents import EnvSpec
from run.buffers import make_replay_buffer
from settings.obs_spec import ObsSpec

CPU = torch.device("cpu")
FRAME, STACK = (3, 5, 7), 3
SHAPE = (STACK * FRAME[0], *FRAME[1:])
both = pytest.mark.parametrize("storage", STORAGES)


class Episodes:
    """Environments that give stacks of random frames; an episode's first frame fills its stack."""

    def __init__(self, num_envs: int, lengths: list[int], seed: int = 0):
        self._rng = np.random.default_rng(seed)
        self._lengths = lengths
        self._obs = [self._first() for _ in range(num_envs)]
        self._left = [int(self._rng.choice(lengths)) for _ in range(num_envs)]
        self.steps = 0

    def _frame(self) -> np.ndarray:
        return self._rng.integers(0, 256, FRAME, np.uint8)

    def _first(self) -> np.ndarray:
        return np.concatenate([self._frame()] * STACK)

    def step(self) -> tuple[np.ndarray, ...]:
        """Returns one step of every environment, as NStep takes it."""
        obs = np.stack(self._obs)
        next_obs = np.stack([np.concatenate([o[FRAME[0] :], self._frame()]) for o in obs])
        self._left = [left - 1 for left in self._left]
        done = np.array([left == 0 for left in self._left])
        self.steps += 1
        for i, ended in enumerate(done):
            self._obs[i] = self._first() if ended else next_obs[i]
            self._left[i] = int(self._rng.choice(self._lengths)) if ended else self._left[i]
        actions = self._rng.uniform(-1, 1, (len(obs), 2)).astype(np.float32)
        return obs, actions, self._rng.normal(size=len(obs)), next_obs, done, done & (self.steps % 2 == 0)


def filled(
    storage: str, steps: int, capacity: int = 40, lengths: tuple[int, ...] = (4, 9)
) -> tuple[Any, list[tuple[Any, ...]]]:
    buffer: Any = STORAGES[storage](SHAPE, (2,), capacity, CPU, frame_stack=STACK)  # type: ignore[call-arg]
    episodes, rows = Episodes(1, list(lengths)), NStep(1)
    added: deque[tuple[Any, ...]] = deque(maxlen=capacity)
    for _ in range(steps):
        for row in zip(*rows.rows(*episodes.step()), strict=True):
            buffer.add(*row)
            added.append(row)
    return buffer, list(added)


def assert_drawn(buffer: Any, added: list[tuple[Any, ...]]) -> None:
    """Asserts that each of the rows is drawn, as it was added, and no other row is."""
    by_action = {float(row[1][0]): row for row in added}
    batch = buffer.sample(40 * len(added))
    assert len(buffer) == len(added) and batch.obs.dtype == batch.next_obs.dtype == torch.uint8
    assert set(batch.action[:, 0].tolist()) == set(by_action)
    rows = [by_action[action] for action in batch.action[:, 0].tolist()]
    for index, drawn in enumerate((batch.obs, batch.action, batch.reward[:, 0], batch.next_obs)):
        np.testing.assert_array_equal(drawn, np.array([row[index] for row in rows], drawn.numpy().dtype))
    discounts = [0.0 if row[5] else row[6] if len(row) > 6 else 1.0 for row in rows]
    assert batch.discount[:, 0].tolist() == discounts


def test_a_frame_is_stored_once() -> None:
    buffer, _ = filled("host", 900, capacity=1000, lengths=(9,))
    assert buffer.frames.num_added == 900 + 100  # each transition's newest frame, each episode's first frame


@both
def test_where_episodes_are_short_the_rows_that_lack_a_frame_are_not_drawn(storage: str) -> None:
    buffer, added = filled(storage, 300, capacity=200, lengths=(1,))  # two frames for each row
    assert buffer.frames.capacity == 264
    assert_drawn(buffer, added[-132:])


def test_a_frame_that_stays_the_same_is_one_frame_and_loses_few_rows() -> None:
    buffer, rng = FrameBuffer(SHAPE, (2,), 100, CPU, frame_stack=STACK), np.random.default_rng(0)
    blank = np.zeros(SHAPE, np.uint8)
    for i in range(1000):
        moving = np.concatenate([blank[3:], rng.integers(0, 256, FRAME, np.uint8)])
        buffer.add(blank, np.zeros(2), float(i), moving, False, False)
    newest = buffer.sample(2000)
    assert len(buffer) >= 100 - buffer._searched and not newest.obs.any()
    assert newest.reward.min() >= 1000 - len(buffer)


@both
@pytest.mark.parametrize("lengths", [(9,), (1,)])
def test_a_state_and_the_rings_rows_go_on_to_the_same_bytes(storage: str, lengths: tuple[int, ...]) -> None:
    (saved, _), (loaded, _) = filled(storage, 333, lengths=lengths), filled(storage, 50, lengths=(2,))
    for name, ring in saved.rings.items():
        start = ring.num_added - len(ring)
        for rows in ring.chunks(start, ring.num_added):
            loaded.rings[name].put_chunk(start, rows)
            start += len(rows)
    loaded.load_state_dict(saved.state_dict())
    episodes = [Episodes(1, list(lengths), seed=7) for _ in range(2)]
    for _ in range(90):
        for buffer, source in zip((saved, loaded), episodes, strict=True):
            buffer.add_batch(*NStep(1).rows(*source.step()))
        assert all(map(torch.equal, saved.sample(4), loaded.sample(4)))
        saved.stage(4)
        assert all(map(torch.equal, saved.staged(), loaded.sample(4)))  # in two halves
    assert len(saved) == len(loaded) and same(saved.state_dict(), loaded.state_dict())
    np.testing.assert_array_equal(saved.rows, loaded.rows)


def test_a_state_without_its_rows_begins_anew() -> None:
    buffer, _ = filled("host", 333, lengths=(1,))
    buffer.load_state_dict(buffer.state_dict() | {"num_added": 0})
    assert (len(buffer), buffer.frames.num_added) == (0, 0)
    blank = np.zeros(SHAPE, np.uint8)
    buffer.add(blank, np.zeros(2), 5.0, blank, False, False)
    assert buffer.sample(3).reward.tolist() == [[5.0]] * 3


def test_two_frames_of_one_checksum_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zlib.crc32", lambda frame: 0)
    buffer, added = filled("host", 100)
    assert_drawn(buffer, added[-len(buffer) :])  # some frames are stored again, in the places of others


@pytest.mark.parametrize("size", [64, 84])
def test_memory_is_a_twentieth_more_than_the_frames_themselves(size: int) -> None:
    asked = nbytes(ObsSpec((9, size, size), frame_stack=3), (6,), 100_000)
    assert 1 < asked / (100_000 * 3 * size * size) <= 1.05


@both
@pytest.mark.parametrize("image", [None, (6, 3, 5)])
def test_vectors_are_stored_once_and_stacked_too_alone_and_beside_images(storage: str, image: Any) -> None:
    spec, rng = ObsSpec(image, vector_dim=6, frame_stack=2), np.random.default_rng(0)
    kind: Any = STORAGES[storage]
    buffer = kind(spec.shape, (1,), 40, CPU, obs_spec=spec)
    added: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    images: deque[np.ndarray] = deque(maxlen=2)
    vectors: deque[np.ndarray] = deque(maxlen=2)
    obs = np.zeros(0)
    for step in range(101):
        images.extend([rng.integers(0, 256, (3, 3, 5), np.uint8)] * (1 if step else 2))
        vectors.extend([rng.normal(size=3).astype(np.float32)] * (1 if step else 2))
        vector = np.stack(vectors, axis=1).ravel()
        next_obs = spec.pack(np.concatenate(images), vector) if image else vector
        if step:
            added[step] = obs, next_obs
            buffer.add(obs, np.full(1, step, np.float32), 0.0, next_obs, False, False)
        obs = next_obs
    assert buffer.frames.num_added == 101
    batch = buffer.sample(900)
    assert {int(step) for step in batch.action} == set(range(61, 101))
    assert batch.obs.shape == (900, *spec.shape)
    for step, *drawn in zip(batch.action[:, 0].tolist(), batch.obs.numpy(), batch.next_obs.numpy(), strict=True):
        assert [row.tobytes() for row in drawn] == [row.tobytes() for row in added[step]]


def test_of_many_environments_a_frame_is_stored_once_too() -> None:
    num_envs, stack, steps = 1100, 4, 8
    cfg = composed.settings(f"num_envs={num_envs}", "replay_buffer_capacity=20_000", f"frame_stack={stack}")
    spec = ObsSpec(vector_dim=stack, frame_stack=stack)
    buffer = make_replay_buffer(cfg, EnvSpec(spec, (1,)), CPU, "host")
    zeros, numbers = np.zeros(num_envs, np.float32), np.arange(steps * num_envs, dtype=np.float32).reshape(steps, -1)
    stacks = [np.stack([numbers[max(0, t - age)] for age in reversed(range(stack))], 1) for t in range(steps)]
    for obs, next_obs in pairwise(stacks):
        buffer.add_batch(obs, zeros[:, None], zeros, next_obs, zeros, zeros)
    assert buffer.frames.num_added == numbers.size
