"""Frames that are stored once, and the stacks made of them, compared with a list of what was added."""

from collections import deque
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import composed
import numpy as np
import pytest
import torch
from same_run import same

import replay_buffer
from replay import frames
from replay.frames import STORAGES, FrameBuffer, nbytes
from replay.n_step import NStep
from replay_buffer import ReplayBuffer
from run.data.buffers import build_replay_buffer
from run.env_spec import EnvSpec
from settings.obs_spec import ObsSpec
from utils import UserError

CPU = torch.device("cpu")
FRAME, STACK = (3, 5, 7), 3
SHAPE = (STACK * FRAME[0], *FRAME[1:])
Transition = tuple[Any, ...]


class Episodes:
    """Environments that give stacks of random frames; an episode's first frame fills its stack."""

    def __init__(self, num_envs: int, lengths: list[int], seed: int = 0):
        self._rng = np.random.default_rng(seed)
        self._lengths = lengths
        self._obs = [self._first() for _ in range(num_envs)]
        self._left = [self._length() for _ in range(num_envs)]
        self.steps = 0

    def _frame(self) -> np.ndarray:
        return self._rng.integers(0, 256, FRAME, np.uint8)

    def _first(self) -> np.ndarray:
        return np.concatenate([self._frame()] * STACK)

    def _length(self) -> int:
        return int(self._rng.choice(self._lengths))

    def step(self) -> tuple[np.ndarray, ...]:
        """Returns one step of every environment, as NStep takes it."""
        obs = np.stack(self._obs)
        next_obs = np.stack([np.concatenate([o[FRAME[0] :], self._frame()]) for o in obs])
        self._left = [left - 1 for left in self._left]
        done = np.array([left == 0 for left in self._left])
        self.steps += 1
        actions = self._rng.uniform(-1, 1, (len(obs), 2)).astype(np.float32)
        rewards = self.steps * 100.0 + np.arange(len(obs))
        for i, ended in enumerate(done):
            self._obs[i] = self._first() if ended else next_obs[i]
            self._left[i] = self._length() if ended else self._left[i]
        return obs, actions, rewards, next_obs, done, done & (self.steps % 2 == 0)


def filled(
    storage: str, steps: int, capacity: int = 40, num_envs: int = 1, n_step: int = 1, lengths: list[int] | None = None
) -> tuple[FrameBuffer, list[Transition]]:
    buffer: Any = STORAGES[storage](SHAPE, (2,), capacity, CPU, frame_stack=STACK)
    episodes, rows = Episodes(num_envs, lengths or [4, 9]), NStep(n_step, 0.5)
    added: deque[Transition] = deque(maxlen=capacity)
    for _ in range(steps):
        for row in zip(*rows.rows(*episodes.step()), strict=True):
            buffer.add(*row)
            added.append(row)
    return buffer, list(added)


def assert_drawn(buffer: ReplayBuffer, added: list[Transition]) -> None:
    """Asserts that each of the rows is drawn, as it was added, and no other row is."""
    by_action = {float(row[1][0]): row for row in added}  # random, so they differ; n-step rewards may be equal
    batch = buffer.sample(40 * len(added))
    assert batch.obs.dtype == batch.next_obs.dtype == torch.uint8
    assert set(batch.action[:, 0].tolist()) == set(by_action)
    rows = [by_action[action] for action in batch.action[:, 0].tolist()]
    for index, drawn in enumerate((batch.obs, batch.action, batch.reward[:, 0], batch.next_obs)):
        np.testing.assert_array_equal(drawn, np.array([row[index] for row in rows], drawn.numpy().dtype))
    discounts = [0.0 if row[5] else row[6] if len(row) > 6 else 1.0 for row in rows]
    assert batch.discount[:, 0].tolist() == discounts


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(("num_envs", "n_step"), [(1, 1), (3, 1), (1, 3), (2, 3)])
def test_stacks_are_those_that_were_added_at_an_episodes_start_and_at_the_rings_seam(
    storage: str, num_envs: int, n_step: int
) -> None:
    for steps in (3, 10, 47, 200):
        buffer, added = filled(storage, steps, num_envs=num_envs, n_step=n_step)
        if added:
            assert len(buffer) == len(added)
            assert_drawn(buffer, added)


def test_a_frame_is_stored_once() -> None:
    buffer, _ = filled("host", 900, capacity=1000, lengths=[9])
    assert buffer.num_added == 900
    assert buffer.frames.num_added == 900 + 100  # each transition's newest frame, each episode's first frame


def test_where_episodes_are_short_the_rows_that_lack_a_frame_are_not_drawn() -> None:
    for storage in STORAGES:
        buffer, added = filled(storage, 300, capacity=200, lengths=[1])  # two frames for each row
        assert buffer.frames.capacity == 264
        assert len(buffer) == 132
        assert_drawn(buffer, added[-132:])


def test_a_frame_that_stays_the_same_is_one_frame_and_loses_few_rows() -> None:
    buffer = FrameBuffer(SHAPE, (2,), 100, CPU, frame_stack=STACK)
    blank = np.zeros(SHAPE, np.uint8)
    rng = np.random.default_rng(0)
    for i in range(1000):
        moving = np.concatenate([blank[3:], rng.integers(0, 256, FRAME, np.uint8)])
        buffer.add(blank, np.zeros(2), float(i), moving, False, False)
    newest = buffer.sample(2000)
    assert len(buffer) >= 100 - buffer._searched and not newest.obs.any()
    assert newest.reward.min() >= 1000 - len(buffer)


@pytest.mark.parametrize("storage", STORAGES)
def test_stage_and_staged_are_a_sample_in_two_halves_that_stays_where_it_is(storage: str) -> None:
    (whole, _), (halves, _) = filled(storage, 60), filled(storage, 60)
    places = []
    for _ in range(3):
        halves.stage(8)
        assert all(map(torch.equal, whole.sample(8), halves.staged()))
        if storage != "device":  # there, both lie in the mirrors
            places.append(tuple(memory.data_ptr() for memory in halves._staged))
    assert len(set(places)) <= 1


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("lengths", [[9], [1]])
def test_a_state_and_the_rings_rows_go_on_to_the_same_bytes(storage: str, lengths: list[int]) -> None:
    saved, _ = filled(storage, 333, lengths=lengths)
    loaded, _ = filled(storage, 50, lengths=[2])
    for name, ring in saved.rings.items():
        start = ring.num_added - len(ring)
        for rows in ring.chunks(start, ring.num_added):
            loaded.rings[name].put_chunk(start, rows)
            start += len(rows)
    loaded.load_state_dict(saved.state_dict())
    assert same(saved.state_dict(), loaded.state_dict())
    episodes = [Episodes(1, lengths, seed=7) for _ in range(2)]
    for _ in range(90):
        for buffer, source in zip((saved, loaded), episodes, strict=True):
            buffer.add_batch(*NStep(1).rows(*source.step()))
        assert all(map(torch.equal, saved.sample(4), loaded.sample(4)))
    assert len(saved) == len(loaded) and same(saved.state_dict(), loaded.state_dict())
    np.testing.assert_array_equal(saved._places(saved.rows), loaded._places(loaded.rows))


def test_a_forged_row_points_nowhere() -> None:
    buffer, _ = filled("host", 20)
    buffer.rows.view(np.int32)[3, 0] = 10**6
    with pytest.raises(ValueError, match=r"^rows name frames outside the ring$"):
        buffer.load_state_dict(buffer.state_dict())


def test_a_state_without_its_rows_begins_anew() -> None:
    buffer, _ = filled("host", 333, lengths=[1])
    buffer.load_state_dict(buffer.state_dict() | {"num_added": 0})
    assert (len(buffer), buffer.frames.num_added) == (0, 0)
    blank = np.zeros(SHAPE, np.uint8)
    buffer.add(blank, np.zeros(2), 5.0, blank, False, False)
    assert buffer.sample(3).reward.tolist() == [[5.0]] * 3


def test_two_frames_of_one_checksum_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_checksum", lambda frame: 0)
    buffer, added = filled("host", 100)
    assert_drawn(buffer, added[-len(buffer) :])  # some frames are stored again, in the places of others


def test_memory_is_a_twentieth_more_than_the_frames_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (64, 84):
        asked = nbytes(ObsSpec((9, size, size), frame_stack=3), (6,), 100_000)
        assert 1 < asked / (100_000 * 3 * size * size) <= 1.05
    monkeypatch.setattr(replay_buffer, "available_bytes", lambda: 10**9)
    monkeypatch.setattr(frames, "available_bytes", lambda: 10**9)
    said = (
        r"replay_buffer_capacity=100000: 1,[\d,]+ bytes are needed for frames of 64x64 pixels, 1,000,000,000 are free"
    )
    with pytest.raises(UserError, match=said):
        FrameBuffer((9, 64, 64), (6,), 100_000, CPU, frame_stack=3)


@pytest.mark.parametrize("storage", STORAGES)
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
    agent = SimpleNamespace(batch_size=8)
    buffer = build_replay_buffer(cfg, EnvSpec(spec, (1,)), CPU, "host", "eager", agent)
    zeros, numbers = np.zeros(num_envs, np.float32), np.arange(steps * num_envs, dtype=np.float32).reshape(steps, -1)
    stacks = [np.stack([numbers[max(0, t - age)] for age in reversed(range(stack))], 1) for t in range(steps)]
    for obs, next_obs in pairwise(stacks):
        buffer.add_batch(obs, zeros[:, None], zeros, next_obs, zeros, zeros)
    assert buffer.frames.num_added == numbers.size
