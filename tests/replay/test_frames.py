"""Frames that are stored once, and the stacks made of them, compared with a list of what was added."""

from collections import deque
from itertools import pairwise
from typing import Any

import composed
import numpy as np
import pytest
import torch

from replay.device import nbytes
from replay.frames import STORAGES, FrameBuffer
from run.agents import EnvSpec
from run.buffers import make_replay_buffer
from settings.obs_spec import ObsSpec

CPU = torch.device("cpu")
FRAME, STACK = (3, 5, 7), 3
SHAPE = (STACK * FRAME[0], *FRAME[1:])
both = pytest.mark.parametrize("storage", STORAGES)


def filled(steps: int, length: int) -> tuple[FrameBuffer, list[tuple[Any, ...]]]:
    """A buffer for 40 rows after steps of episodes of random frames, and the newest 40 of its rows."""
    buffer, rng = (
        FrameBuffer(SHAPE, (2,), 40, CPU, obs_spec=ObsSpec(SHAPE, frame_stack=STACK)),
        np.random.default_rng(0),
    )
    added: deque[tuple[Any, ...]] = deque(maxlen=40)
    for step in range(steps):
        new = rng.integers(0, 256, (2, *FRAME), np.uint8)
        obs = added[-1][3] if step % length else np.concatenate([new[0]] * STACK)
        next_obs = np.concatenate([obs[FRAME[0] :], new[1]])
        added.append((obs, rng.uniform(-1, 1, 2).astype(np.float32), float(rng.normal()), next_obs, False, False))
        buffer.add(*added[-1])
    return buffer, list(added)


def test_a_frame_that_stays_the_same_is_one_frame_and_loses_few_rows() -> None:
    buffer, rng = (
        FrameBuffer(SHAPE, (2,), 100, CPU, obs_spec=ObsSpec(SHAPE, frame_stack=STACK)),
        np.random.default_rng(0),
    )
    blank = np.zeros(SHAPE, np.uint8)
    for i in range(1000):
        moving = np.concatenate([blank[3:], rng.integers(0, 256, FRAME, np.uint8)])
        buffer.add(blank, np.zeros(2), float(i), moving, False, False)
    newest = buffer.sample(2000)
    assert len(buffer) >= 100 - buffer._searched and not newest.obs.any()
    assert newest.reward.min() >= 1000 - len(buffer)


def test_two_frames_of_one_checksum_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zlib.crc32", lambda frame: 0)
    buffer, added = filled(100, length=9)
    by_action = {float(row[1][0]): row for row in added[-len(buffer) :]}  # some frames are stored again
    batch = buffer.sample(40 * len(buffer))
    actions = batch.action[:, 0].tolist()
    assert set(actions) == set(by_action)
    for index, drawn in ((0, batch.obs), (3, batch.next_obs)):
        np.testing.assert_array_equal(drawn, [by_action[action][index] for action in actions])


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
