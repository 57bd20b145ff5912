"""Rows that are not equally likely: which are drawn, their weights, and saved states."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from agents import ACTION_DIM, OBS_DIM
from stand_in_graphs import fill
from transitions import take_over

from replay.frames import FrameBuffer
from replay.sampling import FAN_OUT, Fading, Prioritised, SumTree
from replay_buffer import Batch, ReplayBuffer, WeightedBatch
from utils import UserError

CPU = torch.device("cpu")


def buffer_with(sampling: Any, capacity: int = 12, rows: int = 17) -> Any:
    buffer = ReplayBuffer((OBS_DIM,), (ACTION_DIM,), capacity, CPU, seed=3, sampling=sampling)
    fill(buffer, rows, seed=0)
    return buffer


def assert_drawn(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """A chi-square test of (N,) counts; at most one correct sampler in 10 000 fails it."""
    expected = counts.sum() * probabilities / probabilities.sum()
    freedom = len(counts) - 1
    assert ((counts - expected) ** 2 / expected).sum() < freedom + 3.72 * np.sqrt(2 * freedom) + 10


@pytest.mark.parametrize("size", [1, FAN_OUT, FAN_OUT + 1, 3 * FAN_OUT**2 + 5])
def test_a_point_is_found_in_the_value_that_covers_it(size: int) -> None:
    random, tree = np.random.default_rng(0), SumTree(size)
    values = random.integers(0, 4, size).astype(float)
    values[-1] = 2.0
    tree.put(np.arange(size), values)
    assert tree.total == values.sum()
    points = random.uniform(0, tree.total, 500)
    np.testing.assert_array_equal(tree.find(points), values.cumsum().searchsorted(points, "right"))
    assert tree.find(np.array([np.nextafter(tree.total, np.inf)])) == [size - 1]  # past the total: the last value


def test_rows_are_drawn_by_their_td_errors_and_weighed_against_it() -> None:
    buffer = buffer_with(partial(Prioritised, alpha=0.6, beta=0.4, beta_rows=34))
    errors = torch.linspace(0.05, 5, 12)
    buffer.sample(1)
    buffer.update_priorities(torch.arange(12), errors)
    p = (errors.double().numpy() + 1e-6) ** 0.6
    batch = buffer.sample(20_000)
    assert isinstance(batch, WeightedBatch)
    assert_drawn(np.bincount(batch.index, minlength=12), p)
    stored = torch.from_numpy(buffer.rows)[batch.index]  # the index is the row's place
    assert torch.equal(batch.obs, stored[:, :OBS_DIM])
    weights = (12 * p / p.sum()) ** -0.7  # beta is half-way from 0.4 to 1: 17 of 34 rows
    np.testing.assert_allclose(batch.weight, (weights / weights.max())[batch.index], rtol=1e-6)


def test_new_rows_are_as_likely_as_the_likeliest_so_far() -> None:
    buffer = buffer_with(partial(Prioritised, alpha=1.0))
    buffer.sample(1)
    buffer.update_priorities(torch.arange(12), torch.tensor([5.0] + [0.5] * 11))
    buffer.update_priorities(torch.tensor([0]), torch.tensor([0.5]))
    fill(buffer, 2, seed=1)  # rows 17 and 18, at places 5 and 6
    probabilities = np.full(12, 0.5)
    probabilities[[5, 6]] = 5.0
    assert_drawn(np.bincount(buffer.sample(20_000).index, minlength=12), probabilities)


def test_with_a_floor_small_errors_are_equally_likely_and_nothing_is_weighed() -> None:
    buffer = buffer_with(partial(Prioritised, alpha=0.4, floor=1.0))
    buffer.sample(1)
    buffer.update_priorities(torch.arange(12), torch.tensor([0.0, 0.5, 1.0, 32.0] * 3))
    batch = buffer.sample(20_000)
    assert_drawn(np.bincount(batch.index, minlength=12), np.array([1.0, 1.0, 1.0, 4.0] * 3))
    assert torch.equal(batch.weight, torch.ones(20_000))


def test_rows_of_images_that_have_lost_a_frame_are_not_drawn() -> None:
    buffer, random = FrameBuffer((1, 8, 8), (2,), 100, CPU, sampling=Prioritised), np.random.default_rng(0)
    for number in range(400):
        obs, next_obs = random.integers(0, 256, (2, 1, 8, 8), np.uint8)  # two frames a row, so frames run out first
        buffer.add(obs, np.zeros(2), float(number), next_obs, False, False)
        if number % 30 == 29:
            batch: Any = buffer.sample(512)
            assert batch.reward.min() >= buffer.num_added - len(buffer)
            assert len(batch.reward.unique()) == len(buffer) < 101
            buffer.update_priorities(batch.index, torch.full((512,), 1.0))
    assert len(buffer) < 100


@pytest.mark.parametrize(
    ("decay", "floor", "capacity", "rows"),
    [(0.9, 0.3, 40, 57), (0.99, 0.5, 40, 57), (0.9, 0.1, 9, 9), (0.9, 0.1, 1, 1)],
)
def test_probability_falls_with_age_down_to_the_floor(decay: float, floor: float, capacity: int, rows: int) -> None:
    buffer = buffer_with(partial(Fading, decay=decay, floor=floor), capacity, rows)
    places, weights = buffer.choose(200_000)
    ages = (rows - 1 - places) % capacity
    assert weights is None and isinstance(buffer.sample(4), Batch)
    assert_drawn(np.bincount(ages, minlength=capacity), np.maximum(floor, decay ** np.arange(capacity)))


@pytest.mark.parametrize("sampling", [Prioritised, Fading])
def test_a_restored_buffer_draws_the_same_rows(sampling: Any) -> None:
    whole, restored = buffer_with(sampling), buffer_with(sampling, rows=0)
    errors = np.random.default_rng(1)

    def use(*buffers: Any) -> None:
        batches = [buffer.sample(6) for buffer in buffers]
        assert all(map(torch.equal, batches[0], batches[-1]))
        error = torch.from_numpy(errors.random(6))
        for buffer, batch in zip(buffers, batches, strict=True):
            if sampling is Prioritised:
                buffer.update_priorities(batch.index, error)
            fill(buffer, 1, seed=2)

    for _ in range(5):
        use(whole)
    take_over(restored, whole)
    for _ in range(20):
        use(whole, restored)


def test_a_checkpoint_without_priorities_begins_with_equal_ones() -> None:
    plain, buffer = buffer_with(None), buffer_with(partial(Prioritised, floor=1.0), rows=0)
    take_over(buffer, plain)
    assert_drawn(np.bincount(buffer.sample(20_000).index, minlength=12), np.ones(12))


def test_it_is_refused_without_replacement() -> None:
    with pytest.raises(UserError, match=r"^sample_with_replacement=false: only rows that are drawn uniformly"):
        ReplayBuffer((4,), (2,), 10, CPU, with_replacement=False, sampling=Fading)
