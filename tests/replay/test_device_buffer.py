"""The device's mirror of the rows compared with the rows, and the staging between them; both work on the CPU, too."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transitions import take_over, transition

from replay.device import (
    MIRRORED_ROWS,
    SHARE_OF_FREE_MEMORY,
    DeviceReplayBuffer,
    PinnedReplayBuffer,
    Staging,
    choose_storage,
)
from replay_buffer import ReplayBuffer, nbytes
from utils import UserError

CPU, GPU = torch.device("cpu"), torch.device("cuda")
KINDS = [DeviceReplayBuffer, PinnedReplayBuffer]


def make(kind: type[ReplayBuffer], capacity: int, seed: int = 0) -> ReplayBuffer:
    return kind((3,), (2,), capacity, CPU, seed)


def rewards(buffer: ReplayBuffer, count: int = 1000) -> set[float]:
    return set(buffer.sample(count).reward[:, 0].tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_batches_hold_the_newest_transitions_whole_as_the_ring_grows_and_wraps(kind: type[ReplayBuffer]) -> None:
    buffer = make(kind, 50)
    for i in range(233):
        buffer.add(*transition(i))
        if i % 7 == 0 or i in (48, 49, 50, 51):  # after several new rows, and around the wrap
            assert rewards(buffer) == {float(j) for j in range(max(0, i - 49), i + 1)}
    for obs, action, reward, next_obs, not_done in zip(*buffer.sample(200), strict=True):
        expected = transition(int(reward.item()))
        np.testing.assert_array_equal(obs, np.float32(expected[0]))
        np.testing.assert_array_equal(action, np.float32(expected[1]))
        np.testing.assert_array_equal(next_obs, np.float32(expected[3]))
        assert not_done.item() == (not expected[5])


def test_more_rows_than_one_copy_takes_and_more_than_the_ring_holds() -> None:
    for capacity in (3 * MIRRORED_ROWS + 5, MIRRORED_ROWS + 1):
        buffer = make(DeviceReplayBuffer, capacity)
        for i in range(3 * MIRRORED_ROWS + 17):
            buffer.add(*transition(i))
        buffer.stage(1)
        assert torch.equal(buffer._mirror, torch.from_numpy(buffer.rows))  # type: ignore[attr-defined]


def test_draws_are_uniform_and_follow_the_seed() -> None:
    buffers = [make(DeviceReplayBuffer, 10, seed) for seed in (3, 3, 4)]
    for buffer in buffers:
        for i in range(10):
            buffer.add(*transition(i))
    same, again, other = (buffer.sample(100_000).reward[:, 0] for buffer in buffers)
    assert torch.equal(same, again)
    assert not torch.equal(same, other)
    assert np.abs(np.bincount(same.long(), minlength=10) - 10_000).max() < 500  # five standard deviations


@pytest.mark.parametrize("kind", [ReplayBuffer, *KINDS])
def test_stage_and_staged_are_a_sample_in_two_halves(kind: type[ReplayBuffer]) -> None:
    whole, halves = make(kind, 20), make(kind, 20)
    for i in range(30):
        for buffer in (whole, halves):
            buffer.add(*transition(i))
        halves.stage(8)
        assert all(map(torch.equal, whole.sample(8), halves.staged()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_a_copy_and_an_empty_buffer_says_so(kind: type[ReplayBuffer]) -> None:
    buffer = make(kind, 1)
    for ask in (buffer.sample, buffer.stage):
        with pytest.raises(ValueError, match="empty"):
            ask(1)
    buffer.add(*transition(0))
    batch = buffer.sample(1)
    buffer.add(*transition(7))
    assert buffer.sample(1).reward.item() == 7
    assert batch.reward.item() == 0


def test_images_stay_bytes_on_the_device() -> None:
    buffer = DeviceReplayBuffer((3, 5, 5), (2,), 4, CPU)
    frames = np.random.default_rng(0).integers(0, 256, (5, 3, 5, 5), np.uint8)
    for i in range(4):
        buffer.add(frames[i], np.zeros(2), i, frames[i + 1], False, False)
    for obs, reward in zip(*buffer.sample(20)[:3:2], strict=True):
        np.testing.assert_array_equal(obs, frames[int(reward)])


@pytest.mark.parametrize("kind", KINDS)
def test_state_dict_continues_the_same_draws(kind: type[ReplayBuffer]) -> None:
    buffer, other = make(kind, 10), make(kind, 10, seed=9)
    for i in range(37):
        buffer.add(*transition(i))
        other.add(*transition(i + 100))
    for ring in (buffer, other):
        ring.sample(5)  # fills the other's mirror with rows that it has to forget
    take_over(other, buffer)
    for ring in (buffer, other):
        ring.add(*transition(40))
    assert all(map(torch.equal, buffer.sample(50), other.sample(50)))


def test_a_shorter_buffer_loaded_into_a_full_one_is_drawn_alone() -> None:
    short, full = make(DeviceReplayBuffer, 10), make(DeviceReplayBuffer, 10)
    for i in range(37):
        full.add(*transition(i + 100))
    for i in range(4):
        short.add(*transition(i))
    full.sample(1)
    take_over(full, short)
    assert rewards(full) == {0.0, 1.0, 2.0, 3.0}


def test_rows_stored_by_another_storage_are_taken_over() -> None:
    host, device = make(ReplayBuffer, 10), make(DeviceReplayBuffer, 10)
    for i in range(12):
        host.add(*transition(i))
    take_over(device, host)
    assert rewards(device) == {float(i) for i in range(2, 12)}


class Event:
    """An event of a device that copies as late as it may: when it is waited for."""

    def __init__(self) -> None:
        self.copies: list[Callable[[], object]] = []
        self.pending: list[Callable[[], object]] = []

    def record(self, stream: Any) -> None:
        self.pending, self.copies = self.copies, []

    def synchronize(self) -> None:
        for copy in self.pending:
            copy()
        self.pending = []


def test_staging_loses_no_row_however_late_the_device_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []

    class LateStaging(Staging):
        def __init__(self, *args: Any):
            super().__init__(*args)
            self._copied = [Event() for _ in self._buffers]
            events.extend(self._copied)

        def _copy(self, place: torch.Tensor, to: torch.Tensor) -> None:
            self._copied[self._turn].copies.append(lambda: to.copy_(place))

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr("replay.device.Staging", LateStaging)
    buffer = make(DeviceReplayBuffer, 64)
    for i in range(150):
        buffer.add(*transition(i))
        if i % 3 == 0:
            buffer.stage(1)
    buffer.stage(1)
    for event in events:
        event.synchronize()
    assert torch.equal(buffer._mirror, torch.from_numpy(buffer.rows))  # type: ignore[attr-defined]


def test_without_replacement_is_for_the_host() -> None:
    with pytest.raises(UserError, match="replay_storage=device: it draws with replacement only; choose pinned"):
        DeviceReplayBuffer((3,), (2,), 10, CPU, with_replacement=False)
    drawn = PinnedReplayBuffer((3,), (2,), 30, CPU, with_replacement=False)
    for i in range(40):
        drawn.add(*transition(i))
    assert len(set(drawn.sample(30).reward[:, 0].tolist())) == 30


def test_auto_is_what_the_machine_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = nbytes((17,), (6,), 1_000_000)
    sizes = 1_000_000, asked
    free = SHARE_OF_FREE_MEMORY * asked
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 10 * free))
    assert choose_storage("auto", CPU, True, *sizes) == "host"
    assert choose_storage("auto", GPU, True, *sizes) == "device"
    assert choose_storage("auto", GPU, False, *sizes) == "pinned"
    free -= 1
    assert choose_storage("auto", GPU, True, *sizes) == "pinned"
    assert choose_storage("device", GPU, True, *sizes) == "device"
    with pytest.raises(UserError, match="device: it draws with replacement only"):
        choose_storage("device", GPU, False, *sizes)
    with pytest.raises(UserError, match=r"replay_storage=pinned: .* device=cpu; choose auto or host"):
        choose_storage("pinned", CPU, True, *sizes)
    free = asked - 1
    with pytest.raises(UserError, match=r"capacity=1000000 needs [\d,]+ bytes and the GPU has [\d,]+ free"):
        choose_storage("device", GPU, True, *sizes)


def test_rows_that_come_as_tensors_are_drawn_and_saved_as_those_of_the_host() -> None:
    on_host, mixed = make(ReplayBuffer, 50), make(DeviceReplayBuffer, 50)
    for start, count in ((0, 7), (7, 30), (37, 9), (46, 60), (106, 8)):  # around the wrap, and more rows than fit
        rows = zip(*(transition(i) for i in range(start, start + count)), strict=True)
        columns = [np.array(column) for column in rows]
        on_host.add_batch(*columns)
        as_tensors = start > 0  # the first rows are arrays, as preloaded ones are
        mixed.add_batch(*(torch.tensor(column) if as_tensors else column for column in columns))
        expected = on_host.stored(on_host.num_added - len(on_host), on_host.num_added)
        assert all(map(torch.equal, mixed.stored(mixed.num_added - len(mixed), mixed.num_added), expected))
        assert rewards(mixed) == set(expected.reward[:, 0].tolist())
    assert not mixed.rows[7:].any()  # the rows that came as tensors were never on the host
    saved = make(DeviceReplayBuffer, 50)
    take_over(saved, mixed)
    assert torch.equal(saved.sample(300).reward, mixed.sample(300).reward)


@pytest.mark.parametrize("kind", [ReplayBuffer, *KINDS])
@pytest.mark.parametrize("count", [1, 4, 49, 50, 51, 130])
def test_a_batch_of_rows_is_stored_as_they_are_one_by_one(kind: type[ReplayBuffer], count: int) -> None:
    one_by_one, together = make(kind, 50), make(kind, 50)
    for start in range(0, 3 * count, count):
        rows = [transition(i) for i in range(start, start + count)]
        for row in rows:
            one_by_one.add(*row)
        together.add_batch(*(np.array(column) for column in zip(*rows, strict=True)))
        np.testing.assert_array_equal(together.rows, one_by_one.rows)
        assert together.num_added == one_by_one.num_added
