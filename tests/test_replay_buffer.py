"""The replay buffer, a ring, agrees with a list of what was stored."""

from collections import deque
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from transitions import transition

import replay_buffer
import utils
from replay_buffer import ReplayBuffer
from settings import operating_system
from utils import UserError

CPU = torch.device("cpu")


def filled(capacity: int, count: int, seed: int = 0) -> tuple[ReplayBuffer, deque]:
    buffer, stored = ReplayBuffer((3,), (2,), capacity, CPU, seed), deque(maxlen=capacity)
    for i in range(count):
        buffer.add(*transition(i))
        stored.append(transition(i))
    return buffer, stored


@pytest.mark.parametrize(("capacity", "count"), [(50, 20), (50, 50), (50, 133), (1, 3)])
def test_it_holds_the_newest_transitions_and_their_fields(capacity: int, count: int) -> None:
    buffer, stored = filled(capacity, count)
    assert len(buffer) == len(stored)
    by_reward = {t[2]: t for t in stored}
    batch = buffer.sample(2000)
    assert set(batch.reward[:, 0].tolist()) == set(by_reward)  # all are drawn, and nothing else
    for obs, action, reward, next_obs, discount in zip(*batch, strict=True):
        expected = by_reward[reward.item()]
        np.testing.assert_array_equal(obs, np.float32(expected[0]))
        np.testing.assert_array_equal(action, np.float32(expected[1]))
        np.testing.assert_array_equal(next_obs, np.float32(expected[3]))
        assert discount.item() == (not expected[5])  # a time limit (done, but not terminated) bootstraps


def test_shapes_and_dtypes() -> None:
    batch = filled(10, 10)[0].sample(4)
    assert [tuple(field.shape) for field in batch] == [(4, 3), (4, 2), (4, 1), (4, 3), (4, 1)]
    assert all(field.dtype == torch.float32 for field in batch)


def test_flags_may_be_lists() -> None:
    buffer = ReplayBuffer((3,), (2,), 10, CPU)
    flags = [False, True, False, True]
    buffer.add_batch(np.zeros((4, 3)), np.zeros((4, 2)), np.zeros(4), np.zeros((4, 3)), flags, flags)
    assert buffer.stored(0, 4).discount.flatten().tolist() == [1.0, 0.0, 1.0, 0.0]


def test_images_stay_bytes() -> None:
    buffer = ReplayBuffer((3, 5, 5), (2,), 4, CPU)
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (5, 3, 5, 5), np.uint8)
    for i in range(4):
        buffer.add(frames[i], np.zeros(2), i, frames[i + 1], False, False)
    batch = buffer.sample(20)
    assert batch.obs.dtype == torch.uint8
    for obs, reward, next_obs in zip(batch.obs, batch.reward, batch.next_obs, strict=True):
        np.testing.assert_array_equal(obs, frames[int(reward)])
        np.testing.assert_array_equal(next_obs, frames[int(reward) + 1])


def test_what_numpy_would_broadcast_or_round_is_refused() -> None:
    buffer, ones = ReplayBuffer((3,), (2,), 4, CPU), np.ones
    for obs, action, next_obs in ((1, 2, 3), (3, 1, 3), (3, 2, 1), (3, 3, 3)):
        with pytest.raises(ValueError, match=r"cannot reshape array of size \d into shape \(1,[23]\)"):
            buffer.add(ones(obs), ones(action), 0.0, ones(next_obs), False, False)
    with pytest.raises(ValueError, match=r"cannot reshape array of size 4 into shape \(4,2\)"):
        buffer.add_batch(ones((4, 3)), ones((4, 1)), ones(4), ones((4, 3)), ones(4), ones(4))
    assert not len(buffer)
    images = ReplayBuffer((3, 5, 5), (2,), 4, CPU)
    with pytest.raises(TypeError, match=r"Cannot cast array data from dtype\('float64'\) to dtype\('uint8'\)"):
        images.add(ones((3, 5, 5)), ones(2), 0.0, ones((3, 5, 5)), False, False)


def test_sampling_is_uniform_with_replacement_and_follows_the_seed() -> None:
    buffer, _ = filled(10, 10)
    counts = np.bincount(buffer.sample(100_000).reward[:, 0].long(), minlength=10)
    assert np.abs(counts - 10_000).max() < 500  # over five standard deviations
    assert len(filled(10, 1)[0].sample(7).reward) == 7
    same, other = filled(10, 10, seed=3)[0].sample(50), filled(10, 10, seed=4)[0].sample(50)
    assert torch.equal(filled(10, 10, seed=3)[0].sample(50).reward, same.reward)
    assert not torch.equal(other.reward, same.reward)


def test_without_replacement_no_transition_comes_twice() -> None:
    buffer = ReplayBuffer((3,), (2,), 30, CPU, with_replacement=False)
    for i in range(40):
        buffer.add(*transition(i))
    drawn = [buffer.sample(25).reward[:, 0].tolist() for _ in range(50)]
    assert all(len(set(rewards)) == 25 for rewards in drawn)
    assert set().union(*drawn) == {float(i) for i in range(10, 40)}
    with pytest.raises(ValueError, match="larger sample"):
        buffer.sample(31)


def test_a_batch_is_a_copy() -> None:
    buffer, _ = filled(1, 1)
    batch = buffer.sample(1)
    buffer.add(*transition(7))
    assert batch.reward.item() == 0


def test_an_empty_buffer_says_so() -> None:
    with pytest.raises(ValueError, match=r"^nothing to sample: the replay buffer is empty$"):
        ReplayBuffer((3,), (2,), 10, CPU).sample(1)


def test_a_sample_in_two_halves_is_the_same_and_lies_where_it_lay() -> None:
    buffer, other = filled(10, 10, seed=3)[0], filled(10, 10, seed=3)[0]
    with pytest.raises(AssertionError, match=r"^stage\(batch_size\) comes first$"):
        buffer.staged()
    places = []
    for batch_size in (6, 6, 4):
        buffer.stage(batch_size)
        staged = buffer.staged()
        assert all(map(torch.equal, staged, other.sample(batch_size)))
        places.append(staged.obs.data_ptr())
    assert places[0] == places[1]  # a captured graph reads at this address
    assert buffer.generators == []


def test_chunks_and_state_dict_restore_a_full_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "CHUNK_BYTES", 4 * 4 * 10)  # four rows
    buffer, _ = filled(10, 37)
    other = ReplayBuffer((3,), (2,), 10, CPU, seed=9)
    start, sizes = 27, []
    for rows in buffer.chunks(27, 37):
        assert np.shares_memory(rows, buffer.rows)
        other.put_chunk(start, rows)
        start += len(rows)
        sizes.append(len(rows))
    assert sizes == [3, 4, 3]  # up to the ring's end, a full chunk, the rest
    other.load_state_dict(buffer.state_dict())
    for ring in (buffer, other):
        ring.add(*transition(40))
    assert all(map(torch.equal, buffer.sample(50), other.sample(50)))


@pytest.mark.parametrize(("obs_shape", "capacity"), [((4,), 20), ((4,), 15), ((3,), 20)])
def test_another_buffers_state_does_not_fit(obs_shape: tuple[int, ...], capacity: int) -> None:
    buffer, other = filled(15, 20)[0], ReplayBuffer(obs_shape, (2,), capacity, CPU)
    numbers = f"15 rows of 10 do not fit {capacity} rows of {other.row_width}"
    with pytest.raises(ValueError, match=f"^{numbers}$"):
        other.load_state_dict(buffer.state_dict())


def test_chunks_of_nothing_of_one_row_and_of_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, _ = filled(10, 37)
    assert list(buffer.chunks(37, 37)) == []
    for start, stop in ((26, 30), (27, 38), (31, 30)):
        with pytest.raises(ValueError, match=f"^transitions {start} to {stop} are not all stored, of 37 ever added$"):
            list(buffer.chunks(start, stop))
    monkeypatch.setattr(utils, "CHUNK_BYTES", 1)  # less than a row
    assert [len(rows) for rows in buffer.chunks(30, 34)] == [1, 1, 1, 1]


def test_a_million_transitions_take_what_was_promised() -> None:
    assert replay_buffer.nbytes((17,), (6,), 1_000_000) <= 180e6  # cheetah_run
    assert replay_buffer.nbytes((223,), (38,), 1_000_000) <= 2e9  # dog_run
    # An image of 75 bytes takes 19 floats; a row has two images, an action of 2, reward and discount.
    assert replay_buffer.nbytes((3, 5, 5), (2,), 1000) == 4 * 42 * 1000


def test_a_buffer_that_does_not_fit_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"replay_buffer_capacity=\d+: [\d,]+ bytes are needed, [\d,]+ are free"):
        ReplayBuffer((1000,), (6,), 10**12, CPU)
    monkeypatch.setattr(replay_buffer, "available_bytes", lambda: 1040)
    ReplayBuffer((3,), (2,), 26, CPU)  # rows of 40 bytes
    said = "replay_buffer_capacity=27: 1,080 bytes are needed, 1,040 are free; 26 transitions would fit"
    with pytest.raises(UserError, match=f"^{said}$"):
        ReplayBuffer((3,), (2,), 27, CPU)
    monkeypatch.setattr(replay_buffer, "available_bytes", lambda: 1079)
    with pytest.raises(UserError, match=r"; 26 transitions would fit$"):
        ReplayBuffer((3,), (2,), 27, CPU)


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [
        ("1000", "700", 450),  # 150 of those used are reclaimable file cache
        ("9000", "700", 5000),  # the machine has no more
        ("100", "700", 0),
        ("max", "700", 5000),  # no limit
    ],
)
def test_a_containers_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, used: str, free: int
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=5000))
    monkeypatch.setattr(operating_system, "Path", lambda path: tmp_path / path.lstrip("/"))
    assert operating_system.available_bytes() == 5000  # no container
    folder = tmp_path / "sys/fs/cgroup"
    folder.mkdir(parents=True)
    contents = {"memory.max": limit, "memory.current": used, "memory.stat": "anon 30\ninactive_file 150\nshmem 7\n"}
    for name, text in contents.items():
        (folder / name).write_text(text)
    assert operating_system.available_bytes() == free
