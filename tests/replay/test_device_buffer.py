"""The copy of the rows on the device, and which storage is chosen; both work on the CPU, too."""

import numpy as np
import pytest
import torch
from transitions import take_over, transition

import replay_buffer
from replay.device import SHARE_OF_FREE_MEMORY, DeviceReplayBuffer, fit_storage
from replay.sampling import Fading
from replay_buffer import ReplayBuffer
from settings.obs_spec import ObsSpec
from utils import UserError

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize("capacity", [65, 35])
def test_more_rows_than_one_copy_takes_and_more_than_the_ring_holds(
    capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_buffer, "CHUNK_BYTES", 4 * 10 * 20)  # twenty rows
    buffer = DeviceReplayBuffer((3,), (2,), capacity, CPU)
    for i in range(150):
        buffer.add(*transition(i))
        if i in (10, 37, 99):
            buffer.stage(1)
    buffer.stage(1)
    assert torch.equal(buffer.on_device, torch.from_numpy(buffer.rows))


def test_rows_that_come_as_tensors_are_drawn_and_saved_as_those_of_the_host() -> None:
    on_host, mixed, saved = (kind((3,), (2,), 50, CPU) for kind in (ReplayBuffer, *[DeviceReplayBuffer] * 2))
    for start, count in ((0, 7), (7, 30), (37, 9), (46, 60), (106, 8)):  # around the wrap, and more rows than fit
        rows = zip(*(transition(i) for i in range(start, start + count)), strict=True)
        columns = [np.array(column) for column in rows]
        on_host.add_batch(*columns)
        as_tensors = start > 0  # the first rows are arrays, as preloaded ones are
        mixed.add_batch(*(torch.tensor(column) if as_tensors else column for column in columns))
        expected = on_host.stored(on_host.num_added - len(on_host), on_host.num_added)
        assert all(map(torch.equal, mixed.stored(mixed.num_added - len(mixed), mixed.num_added), expected))
        assert set(mixed.sample(1000).reward[:, 0].tolist()) == set(expected.reward[:, 0].tolist())
    assert not mixed.rows[7:].any()  # the rows that came as tensors were never on the host
    take_over(saved, mixed)
    assert torch.equal(saved.sample(300).reward, mixed.sample(300).reward)


def test_auto_is_what_the_machine_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (SHARE_OF_FREE_MEMORY * 1000, 10**9))
    obs = ObsSpec(vector_dim=123)  # with two action dimensions, a row has 1000 bytes
    cases = ((CPU, True, 2, "host"), (GPU, True, 2, "device"), (GPU, True, 3, "host"), (GPU, False, 2, "host"))
    for device, is_uniform, action_dim, expected in cases:
        assert fit_storage("auto", device, is_uniform, obs, (action_dim,), 1) == expected
    assert fit_storage("device", GPU, True, obs, (2,), 10**6) == "device"


def test_what_is_not_drawn_uniformly_with_replacement_is_for_the_host() -> None:
    refusal = "^replay_storage=device: it draws uniformly and with replacement only; choose host$"
    for options in ({"with_replacement": False}, {"sampling": Fading}):
        with pytest.raises(UserError, match=refusal):
            DeviceReplayBuffer((3,), (2,), 10, CPU, **options)
