"""What critics' outputs mean, against loops and numbers worked out by hand."""

import math

import pytest
import torch

from agent import losses
from agent.heads import CategoricalHead, QuantileHead, ScalarHead
from utils import UserError


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values).unsqueeze(1)


def test_a_scalar_head_is_plain_sac() -> None:
    head, outputs = ScalarHead(), torch.randn(2, 3, 1)
    assert head.values(outputs) is outputs
    arguments = column(1, 2, 3), column(1, 0, 1), 0.9, outputs, column(-1, 2, 0), torch.tensor(0.1)
    target = head.target(*arguments)
    assert torch.equal(target, losses.soft_q_target(*arguments))
    assert torch.equal(head.loss(outputs, target), losses.squared_error(outputs, target))


def test_quantile_huber_against_a_loop() -> None:
    quantiles, target = 2 * torch.randn(2, 4, 3).double(), 2 * torch.randn(4, 5).double()
    quantiles.requires_grad_()
    expected = torch.zeros(()).double()
    for critic in range(2):
        for row in range(4):
            for k in range(3):
                for sample in target[row]:
                    delta = sample - quantiles[critic, row, k]
                    huber = delta**2 / 2 if delta.abs() <= 1 else delta.abs() - 0.5
                    tau = (2 * k + 1) / 6
                    expected = expected + (tau if delta >= 0 else 1 - tau) * huber / (4 * 3 * 5)
    ours = losses.quantile_huber(quantiles, target)
    torch.testing.assert_close(ours, expected)
    found, wanted = (torch.autograd.grad(loss, quantiles)[0] for loss in (ours, expected))
    torch.testing.assert_close(found, wanted)


def test_quantiles_find_those_of_what_they_are_shown() -> None:
    # far apart, so that the Huber loss is the absolute one nearly everywhere
    samples = torch.linspace(0, 1000, 1001).unsqueeze(0)
    places = torch.full((1, 1, 4), 500.0, requires_grad=True)
    optimizer = torch.optim.SGD([places], lr=2000.0)
    for _ in range(500):
        optimizer.zero_grad()
        losses.quantile_huber(places, samples).backward()
        optimizer.step()
    torch.testing.assert_close(places[0, 0], torch.tensor([125.0, 375.0, 625.0, 875.0]), rtol=0, atol=3)


def test_the_topmost_quantiles_of_all_critics_are_dropped() -> None:
    # two critics of three quantiles; of the pool of six the largest two go, wherever they come from
    pool = torch.tensor([[[5.0, 1.0, 9.0]], [[2.0, 8.0, 0.0]]])
    torch.testing.assert_close(losses.truncated_pool(pool, 1), torch.tensor([[0.0, 1.0, 2.0, 5.0]]))
    head = QuantileHead(num_quantiles=3, drop_per_critic=1)
    target = head.target(column(1), column(1), 0.5, pool, column(-2), torch.tensor(0.5))
    torch.testing.assert_close(target, 1 + 0.5 * (torch.tensor([[0.0, 1.0, 2.0, 5.0]]) + 1))
    ended = head.target(column(1), column(0), 0.5, pool, column(-2), torch.tensor(0.5))
    torch.testing.assert_close(ended, torch.ones(1, 4))
    torch.testing.assert_close(head.values(pool), torch.tensor([[[5.0]], [[10 / 3]]]))
    with pytest.raises(UserError, match=r"drop_per_critic=3: below num_quantiles=3"):
        QuantileHead(3, 3)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (-7.0, [1, 0, 0, 0, 0]),  # below all bins
        (-2.0, [1, 0, 0, 0, 0]),  # on the first
        (-1.75, [0.75, 0.25, 0, 0, 0]),
        (-1.0, [0, 1, 0, 0, 0]),  # on one
        (0.5, [0, 0, 0.5, 0.5, 0]),  # between two
        (1.9, [0, 0, 0, 0.1, 0.9]),
        (2.0, [0, 0, 0, 0, 1]),  # on the last
        (40.0, [0, 0, 0, 0, 1]),  # beyond
    ],
)
def test_where_mass_goes(place: float, expected: list[float]) -> None:
    mass = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]])
    projected = losses.project_to_bins(mass, torch.full((1, 5), place), (-2.0, 2.0))
    torch.testing.assert_close(projected, torch.tensor([expected], dtype=torch.float32))


def test_projection_keeps_the_mass_and_within_the_bounds_the_mean() -> None:
    torch.manual_seed(0)
    bounds, centres = (-5.0, 5.0), torch.linspace(-5, 5, 101).double()
    mass = torch.softmax(3 * torch.randn(200, 101).double(), 1)
    for scale, shift in ((0.9, 0.3), (0.0, 1.23), (0.5, -2.5)):
        places = (scale * centres + shift).expand(200, 101)
        projected = losses.project_to_bins(mass, places, bounds)
        assert (projected >= 0).all()
        torch.testing.assert_close(projected.sum(1), torch.ones(200).double())
        torch.testing.assert_close(projected @ centres, (mass * places).sum(1))
    beyond = losses.project_to_bins(mass, 3 * centres.expand(200, 101), bounds)
    torch.testing.assert_close(beyond.sum(1), torch.ones(200).double())


def test_the_categorical_target_is_the_careful_critics_shifted() -> None:
    head = CategoricalHead(num_bins=5, bounds=(-2.0, 2.0))
    certain = 1e4 * torch.eye(5)
    next_outputs = torch.stack([certain[[3, 1]], certain[[2, 4]]])  # means (1, -1) and (0, 2)
    torch.testing.assert_close(head.values(next_outputs)[:, :, 0], torch.tensor([[1.0, -1.0], [0.0, 2.0]]))
    target = head.target(column(1, 0.5), column(1, 1), 0.5, next_outputs, column(-1, -1), torch.tensor(0.5))
    # returns 1 + 0.5 (0 + 0.5) and 0.5 + 0.5 (-1 + 0.5)
    torch.testing.assert_close(target, torch.tensor([[0, 0, 0, 0.75, 0.25], [0, 0, 0.75, 0.25, 0]]))
    ended = head.target(column(1, 1), column(0, 0), 0.5, next_outputs, column(-1, -1), torch.tensor(0.5))
    torch.testing.assert_close(ended, torch.tensor([[0.0, 0, 0, 1, 0]] * 2))
    with pytest.raises(UserError, match="num_bins=1"):
        CategoricalHead(1)


def test_cross_entropy_by_hand() -> None:
    logits = torch.tensor([[[0.0, math.log(3)]], [[0.0, 0.0]]])
    loss = losses.cross_entropy(logits, torch.tensor([[0.5, 0.5]]))
    torch.testing.assert_close(loss.item(), -0.5 * math.log(0.25) - 0.5 * math.log(0.75) + math.log(2))
