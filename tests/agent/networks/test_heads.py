"""Critic heads: their values, targets and losses, against formulas and numbers worked out by hand."""

import torch

from agent import losses
from agent.networks.heads import CategoricalHead, QuantileHead, ScalarHead


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values).unsqueeze(1)


def test_a_scalar_head_is_plain_sac() -> None:
    head, outputs = ScalarHead(), torch.randn(2, 3, 1)
    assert head.values(outputs) is outputs
    reward, discount, cost = column(1, 2, 3), column(1, 0, 1), column(-0.1, 0.2, 0)
    target = head.target(reward, discount, 0.9, outputs, cost)
    smaller = torch.minimum(*outputs)
    torch.testing.assert_close(target, reward + 0.9 * discount * (smaller - cost))
    torch.testing.assert_close(head.target(reward, discount, 0.9, outputs), reward + 0.9 * discount * smaller)
    assert torch.equal(head.loss(outputs, target), losses.squared_error(outputs, target))
    of_mean = ScalarHead("mean").target(reward, discount, 0.9, outputs, cost)
    torch.testing.assert_close(of_mean, reward + 0.9 * discount * (outputs.mean(0) - cost))


def test_a_quantile_target_is_of_what_is_left_of_the_pool() -> None:
    # two critics of three quantiles: the pool of six loses 8 and 9
    pool = torch.tensor([[[5.0, 1.0, 9.0]], [[2.0, 8.0, 0.0]]])
    head = QuantileHead(num_quantiles=3, drop_per_critic=1)
    target = head.target(column(1), column(1), 0.5, pool, column(-1))
    torch.testing.assert_close(target, 1 + 0.5 * (torch.tensor([[0.0, 1.0, 2.0, 5.0]]) + 1))
    torch.testing.assert_close(head.target(column(1), column(0), 0.5, pool, column(-1)), torch.ones(1, 4))
    torch.testing.assert_close(head.values(pool), torch.tensor([[[5.0]], [[10 / 3]]]))


def test_the_categorical_target_is_the_careful_critics_shifted() -> None:
    head = CategoricalHead(num_bins=5, bounds=(-2.0, 2.0))
    certain = 1e4 * torch.eye(5)
    next_outputs = torch.stack([certain[[3, 1]], certain[[2, 4]]])  # means (1, -1) and (0, 2)
    torch.testing.assert_close(head.values(next_outputs)[:, :, 0], torch.tensor([[1.0, -1.0], [0.0, 2.0]]))
    target = head.target(column(1, 0.5), column(1, 1), 0.5, next_outputs, column(-0.5, -0.5))
    # targets 1 + 0.5 (0 + 0.5) and 0.5 + 0.5 (-1 + 0.5)
    torch.testing.assert_close(target, torch.tensor([[0, 0, 0, 0.75, 0.25], [0, 0, 0.75, 0.25, 0]]))
    without = head.target(column(1, 0.5), column(1, 1), 0.5, next_outputs)  # 1 + 0.5 * 0 and 0.5 + 0.5 * -1
    torch.testing.assert_close(without, torch.tensor([[0.0, 0, 0, 1, 0], [0, 0, 1, 0, 0]]))
