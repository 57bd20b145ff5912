"""Replay buffers of either storage, which are rings, agree with a list of what was stored."""

from typing import Any

import numpy as np
import pytest
import torch
from transitions import transition

from replay.device import STORAGES
from replay_buffer import ReplayBuffer

CPU = torch.device("cpu")
both = pytest.mark.parametrize("storage", STORAGES)


def filled(storage: str, capacity: int, count: int, seed: int = 0, **options: Any) -> ReplayBuffer:
    buffer = STORAGES[storage]((3,), (2,), capacity, CPU, seed, **options)
    for i in range(count):
        buffer.add(*transition(i))
    return buffer


@both
def test_images_stay_bytes(storage: str) -> None:
    buffer = STORAGES[storage]((3, 5, 5), (2,), 4, CPU)
    frames = np.random.default_rng(0).integers(0, 256, (5, 3, 5, 5), np.uint8)
    for i in range(4):
        buffer.add(frames[i], np.zeros(2), i, frames[i + 1], False, False)
    batch = buffer.sample(20)
    assert batch.obs.dtype == torch.uint8
    for obs, reward, next_obs in zip(batch.obs, batch.reward, batch.next_obs, strict=True):
        np.testing.assert_array_equal(obs, frames[int(reward)])
        np.testing.assert_array_equal(next_obs, frames[int(reward) + 1])


@both
def test_draws_are_uniform_with_replacement_and_follow_the_seed(storage: str) -> None:
    with pytest.raises(ValueError, match="nothing to sample"):
        filled(storage, 10, 0).sample(1)
    same, again, other = (filled(storage, 10, 10, seed).sample(100_000).reward[:, 0] for seed in (3, 3, 4))
    assert torch.equal(same, again) and not torch.equal(same, other)
    assert np.abs(np.bincount(same.long(), minlength=10) - 10_000).max() < 500  # over five standard deviations


def test_without_replacement_no_transition_comes_twice() -> None:
    buffer = filled("host", 30, 40, with_replacement=False)
    drawn = [buffer.sample(25).reward[:, 0].tolist() for _ in range(50)]
    assert all(len(set(rewards)) == 25 for rewards in drawn)
    assert set().union(*drawn) == {float(i) for i in range(10, 40)}
    with pytest.raises(ValueError, match="larger sample"):
        buffer.sample(31)


@both
def test_a_sample_in_two_halves_is_the_same_and_on_the_host_lies_where_it_lay(storage: str) -> None:
    whole, halves = (filled(storage, 20, 0) for _ in range(2))
    places = set()
    for i in range(30):
        for buffer in (whole, halves):
            buffer.add(*transition(i))
        halves.stage(8)
        staged = halves.staged()
        assert all(map(torch.equal, whole.sample(8), staged))
        places.add(staged.obs.data_ptr())
    assert storage == "device" or len(places) == 1  # a captured graph reads at this address


def test_a_million_transitions_take_what_was_promised() -> None:
    # cheetah_run
    assert 4 * ReplayBuffer((17,), (6,), 1, CPU).row_width * 1_000_000 <= 180e6
    # An image of 75 bytes takes 19 floats; a row has two images, an action of 2, reward and discount.
    assert ReplayBuffer((3, 5, 5), (2,), 1, CPU).row_width == 42
