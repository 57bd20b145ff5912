"""Each loss against numbers worked out by hand."""

import torch

from agent import losses


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values).unsqueeze(1)


def test_target_takes_the_smaller_critic_and_stops_at_a_termination() -> None:
    target = losses.soft_q_target(
        reward=column(1.0, 1.0),
        not_done=column(1.0, 0.0),
        discount=0.5,
        next_q=torch.stack([column(4.0, 4.0), column(2.0, 9.0)]),
        next_log_prob=column(-1.0, -1.0),
        alpha=torch.tensor(0.2),
    )
    # 1 + 0.5 * (2 + 0.2) = 2.1; the second transition terminated
    torch.testing.assert_close(target, column(2.1, 1.0))


def test_critic_loss_sums_the_critics_mean_squared_errors() -> None:
    q = torch.stack([column(1.0, 3.0), column(0.0, 0.0)])
    # mean(1, 1) + mean(4, 4) against a target of 2
    torch.testing.assert_close(losses.squared_error(q, column(2.0, 2.0)), torch.tensor(5.0))
    torch.testing.assert_close(losses.squared_error(q, column(2.0, 2.0), weight=0.5), torch.tensor(2.5))
    torch.testing.assert_close(losses.squared_error(q[0], column(2.0, 2.0)), torch.tensor(1.0))


def test_actor_loss_weighs_log_prob_and_takes_the_smaller_critic() -> None:
    q = torch.stack([column(1.0, 5.0), column(2.0, 4.0)])
    # mean(0.5 * 2 - 1, 0.5 * 4 - 4) = mean(0, -2)
    torch.testing.assert_close(
        losses.actor_loss(column(2.0, 4.0), losses.minimum(q), torch.tensor(0.5)), torch.tensor(-1.0)
    )


def test_temperature_rises_while_the_entropy_is_below_its_target() -> None:
    log_alpha = torch.zeros((), requires_grad=True)
    # entropy -2, target -1: a multiplier of 1 times -1
    loss = losses.temperature_loss(log_alpha.exp(), torch.tensor(-2.0), target_entropy=-1.0)
    loss.backward()
    torch.testing.assert_close(loss.detach(), torch.tensor(-1.0))
    assert log_alpha.grad is not None and log_alpha.grad.item() == -1.0  # a step down the gradient raises alpha
