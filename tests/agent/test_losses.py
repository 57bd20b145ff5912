"""Each loss against numbers worked out by hand, and its gradients where it holds something constant.

Where there are critics and rows, there are three critics and two rows: confusing them changes the numbers.
"""

import math

import pytest
import torch

from agent import losses
from utils import UserError


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values).unsqueeze(1)


def gradients(loss: torch.Tensor, *of: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """The loss's gradients; None for what it holds constant."""
    return torch.autograd.grad(loss, of, allow_unused=True)


def three_critics() -> torch.Tensor:
    """(3, 2, 1)"""
    return torch.stack([column(1.0, 5.0), column(2.0, 4.0), column(6.0, 0.0)]).requires_grad_()


def test_what_critics_are_reduced_to() -> None:
    q = three_critics()
    torch.testing.assert_close(losses.minimum(q), column(1.0, 0.0))
    torch.testing.assert_close(losses.mean(q), column(3.0, 3.0))  # (1 + 2 + 6) / 3 and (5 + 4 + 0) / 3
    torch.testing.assert_close(losses.first(q), column(1.0, 5.0))


def test_the_gradient_of_a_minimum_is_one_critics_and_of_equal_values_too() -> None:
    q = torch.stack([column(1.0, 7.0), column(2.0, 7.0), column(3.0, 8.0)]).requires_grad_()
    (found,) = gradients(losses.minimum(q).sum(), q)
    assert found is not None
    assert found[:, 0, 0].tolist() == [1, 0, 0]
    assert sorted(found[:, 1, 0].tolist()) == [0, 0, 1] and found[2, 1, 0] == 0  # not a half each


def test_a_target_stops_at_a_termination() -> None:
    target = losses.q_target(column(1.0, 1.0, 2.0), column(1.0, 0.0, 0.9), column(2.2, 4.2, 10.0), gamma=0.5)
    # 1 + 0.5 * 2.2; the second transition terminated; the third spans two steps, 2 + 0.5 * 0.9 * 10
    torch.testing.assert_close(target, column(2.1, 1.0, 6.5))


def test_a_target_of_several_samples_has_its_rows_reward_for_each() -> None:
    samples = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    target = losses.q_target(column(1.0, -1.0), column(1.0, 0.5), samples, gamma=0.5)
    # 1 + 0.5 z; -1 + 0.25 z
    torch.testing.assert_close(target, torch.tensor([[1.0, 1.5, 2.0], [-0.25, 0.0, 0.25]]))


def test_value_target_is_the_smallest_critics_less_the_weighed_log_prob() -> None:
    log_prob, alpha, q = column(-1.0, 2.0), torch.tensor(0.5), losses.minimum(three_critics())
    # 1 + 0.5 * 1 and 0 - 0.5 * 2; then plus log p(a)
    torch.testing.assert_close(losses.value_target(q, log_prob, alpha, 0.0), column(1.5, -1.0))
    with_prior = losses.value_target(q, log_prob, alpha, column(0.25, -2.0))
    torch.testing.assert_close(with_prior, column(1.75, -3.0))


def test_squared_error_is_the_mean_over_rows_summed_over_critics() -> None:
    q, target = three_critics(), column(2.0, 1.0)
    # ((1 - 2)^2 + (5 - 1)^2) / 2 = 8.5, (0 + 9) / 2 = 4.5, (16 + 1) / 2 = 8.5
    torch.testing.assert_close(losses.squared_error(q, target), torch.tensor(21.5))
    torch.testing.assert_close(losses.squared_error(q, target, weight=0.5), torch.tensor(10.75))
    torch.testing.assert_close(losses.squared_error(q[0], target), torch.tensor(8.5))  # a value network's
    (found,) = gradients(losses.squared_error(q, target, weight=0.5), q)
    # 0.5 * 2 (q - y) / 2
    torch.testing.assert_close(found, torch.stack([column(-0.5, 2.0), column(0.0, 1.5), column(2.0, -0.5)]))


def test_squared_error_refuses_a_target_that_would_meet_every_row_with_every_other() -> None:
    for values in (three_critics(), column(1.0, 5.0)):
        with pytest.raises(RuntimeError):
            losses.squared_error(values, torch.tensor([2.0, 1.0]))  # (B,), not (B, 1)


def test_actor_loss_weighs_log_prob_against_q_row_by_row() -> None:
    log_prob, q = column(2.0, 4.0).requires_grad_(), column(1.0, 4.5).requires_grad_()
    loss = losses.actor_loss(log_prob, q, torch.tensor(0.5))
    # mean(0.5 * 2 - 1, 0.5 * 4 - 4.5) = mean(0, -2.5)
    torch.testing.assert_close(loss, torch.tensor(-1.25))
    by_log_prob, by_q = gradients(loss, log_prob, q)
    torch.testing.assert_close(by_log_prob, column(0.25, 0.25))  # alpha / B
    torch.testing.assert_close(by_q, column(-0.5, -0.5))  # -1 / B


def test_the_likelihood_ratio_gradient_goes_through_the_log_prob_in_front_alone() -> None:
    log_prob, q, value = (column(*pair).requires_grad_() for pair in ((1.0, -2.0), (3.0, 1.0), (0.5, 2.0)))
    log_prior = column(0.25, -1.0).requires_grad_()
    loss = losses.likelihood_ratio_loss(log_prob, q, value, torch.tensor(0.5), log_prior)
    # factors 0.5 * 1 - 3 + 0.5 - 0.25 = -2.25 and 0.5 * -2 - 1 + 2 + 1 = 1; mean(1 * -2.25, -2 * 1)
    torch.testing.assert_close(loss, torch.tensor(-2.125))
    by_log_prob, *others = gradients(loss, log_prob, q, value, log_prior)
    torch.testing.assert_close(by_log_prob, column(-1.125, 0.5))  # the factors / B
    assert others == [None, None, None]
    # factors -2 and 0
    uniform = losses.likelihood_ratio_loss(log_prob, q, value, torch.tensor(0.5))
    torch.testing.assert_close(uniform, torch.tensor(-1.0))


def test_outputs_are_regularised_to_0_by_half_their_mean_squares() -> None:
    mu = torch.tensor([[1.0, 2.0], [3.0, 0.0]]).requires_grad_()
    log_std = torch.tensor([[-1.0, 0.0], [1.0, -2.0]]).requires_grad_()
    loss = losses.output_regulariser(mu, log_std, weight=0.2)
    # 0.2 / 2 * (14 / 4 + 6 / 4)
    torch.testing.assert_close(loss, torch.tensor(0.5))
    for output, found in zip((mu, log_std), gradients(loss, mu, log_std), strict=True):
        torch.testing.assert_close(found, 0.05 * output.detach())  # weight / 4 outputs


@pytest.mark.parametrize(("entropy", "gradient"), [(-2.0, -1.0), (0.5, 1.5)])
def test_temperature_rises_while_the_entropy_is_below_its_target(entropy: float, gradient: float) -> None:
    """The target is -1, so errors are -1 and 1.5, times a multiplier of exp(0). A negative gradient raises alpha."""
    log_alpha = torch.zeros((), requires_grad=True)
    loss = losses.temperature_loss(log_alpha.exp(), torch.tensor(entropy), target_entropy=-1.0)
    torch.testing.assert_close(loss, torch.tensor(gradient))
    torch.testing.assert_close(gradients(loss, log_alpha), (torch.tensor(gradient),))


def test_the_log_of_a_normal_prior_is_summed_over_an_actions_dimensions() -> None:
    found = losses.log_normal_prior(torch.tensor([[0.0, 0.0], [1.0, -2.0], [0.5, 0.0]]))
    # two dimensions of -log(2 pi) / 2 = -0.918939 each, less 0, (1 + 4) / 2 and 0.25 / 2
    torch.testing.assert_close(found, column(-1.837877, -4.337877, -1.962877))


@pytest.mark.parametrize(
    ("drop_per_critic", "expected"),
    [
        (0, [[0, 1, 2, 5, 8, 9], [-1, 0, 0, 1, 3, 7]]),
        (1, [[0, 1, 2, 5], [-1, 0, 0, 1]]),  # the largest two of the pool, wherever they come from
        (2, [[0, 1], [-1, 0]]),
    ],
)
def test_the_topmost_quantiles_of_all_critics_are_dropped(drop_per_critic: int, expected: list[list[float]]) -> None:
    quantiles = torch.tensor([[[5.0, 1.0, 9.0], [0.0, 0.0, 1.0]], [[2.0, 8.0, 0.0], [-1.0, 7.0, 3.0]]])
    found = losses.truncated_pool(quantiles, drop_per_critic)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32))


def test_quantile_huber_by_hand() -> None:
    quantiles, target = torch.tensor([[[0.0, 1.0]], [[4.0, 3.0]]]), torch.tensor([[0.5, 3.0]]).requires_grad_()
    quantiles.requires_grad_()
    loss = losses.quantile_huber(quantiles, target)
    # tau is 1/4 and 3/4; the samples are 0.5 and 3.
    # First critic: 0 is 0.5 and 3 below, 1/4 (0.125 + 2.5); 1 is 0.5 above and 2 below, 1/4 0.125 + 3/4 1.5: 1.8125.
    # Second critic: 4 is 3.5 and 1 above, 3/4 (3 + 0.5); 3 is 2.5 above 0.5, 1/4 2: 3.125.
    # The loss is the mean over 2 quantiles, 2 samples and 2 critics.
    torch.testing.assert_close(loss, torch.tensor((1.8125 + 3.125) / 8))
    (found,) = gradients(loss, quantiles)
    # minus the weight times the difference clipped to 1, over 8: -(1/4 0.5 + 1/4 1), -(-1/4 0.5 + 3/4 1) and
    # (3/4 1 + 3/4 1), 1/4 1
    torch.testing.assert_close(found, torch.tensor([[[-0.375, -0.625]], [[1.5, 0.25]]]) / 8)


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
                    expected = expected + (tau if delta >= 0 else 1 - tau) * huber / (2 * 4 * 3 * 5)
    ours = losses.quantile_huber(quantiles, target)
    exact = {"rtol": 1e-12, "atol": 1e-15}  # float64 throughout
    torch.testing.assert_close(ours, expected, **exact)
    torch.testing.assert_close(gradients(ours, quantiles), gradients(expected, quantiles), **exact)


def test_quantiles_find_those_of_what_they_are_shown() -> None:
    # samples spread so far that the Huber loss is nearly everywhere the absolute error
    samples = torch.linspace(0, 1000, 1001).unsqueeze(0)
    places = torch.full((1, 1, 4), 500.0, requires_grad=True)
    optimizer = torch.optim.SGD([places], lr=2000.0)
    for _ in range(500):
        optimizer.zero_grad()
        losses.quantile_huber(places, samples).backward()
        optimizer.step()
    torch.testing.assert_close(places[0, 0], torch.tensor([125.0, 375.0, 625.0, 875.0]), rtol=0, atol=3)


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


def test_mass_that_meets_is_added_in_its_row_alone() -> None:
    mass = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]])
    places = torch.tensor([[0.5, 0.5, -9.0], [1.0, 0.0, 0.5]])
    projected = losses.project_to_bins(mass, places, (0.0, 1.0))  # bins at 0, 1/2 and 1
    torch.testing.assert_close(projected, torch.tensor([[0.25, 0.75, 0.0], [0.5, 0.5, 0.0]]))


def test_projection_keeps_the_mass_and_within_the_bounds_the_mean() -> None:
    torch.manual_seed(0)
    bounds, centres = (-5.0, 5.0), torch.linspace(-5, 5, 101, dtype=torch.float64)
    mass = torch.softmax(3 * torch.randn(200, 101).double(), 1)
    for scale, shift in ((0.9, 0.3), (0.0, 1.23), (0.5, -2.5)):
        places = (scale * centres + shift).expand(200, 101)
        projected = losses.project_to_bins(mass, places, bounds)
        assert (projected >= 0).all()
        torch.testing.assert_close(projected.sum(1), torch.ones(200).double())
        torch.testing.assert_close(projected @ centres, (mass * places).sum(1))
    beyond = losses.project_to_bins(mass, 3 * centres.expand(200, 101), bounds)
    torch.testing.assert_close(beyond.sum(1), torch.ones(200).double())


def test_cross_entropy_is_the_mean_over_rows_summed_over_critics() -> None:
    # softmax, critic by critic: (1/4, 3/4) and (1/2, 1/2); (1/2, 1/2) and (3/4, 1/4); (1/2, 1/2) twice
    log3 = math.log(3)
    logits = torch.tensor([[[0.0, log3], [5.0, 5.0]], [[-2.0, -2.0], [log3, 0.0]], [[0.0, 0.0], [1.0, 1.0]]])
    logits.requires_grad_()
    loss = losses.cross_entropy(logits, torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    # first critic: log 4 / 2 + log(4/3) / 2 and log 2; second: log 2 and log(4/3); third: log 2 twice
    expected = (math.log(4) / 2 + math.log(4 / 3) / 2 + 4 * math.log(2) + math.log(4 / 3)) / 2
    torch.testing.assert_close(loss, torch.tensor(expected))
    (found,) = gradients(loss, logits)
    assert found is not None
    # (softmax - target) / B
    torch.testing.assert_close(found[0], torch.tensor([[-0.125, 0.125], [-0.25, 0.25]]))
    torch.testing.assert_close(found[1], torch.tensor([[0.0, 0.0], [-0.125, 0.125]]))


def test_a_value_without_its_column_is_an_error() -> None:
    with pytest.raises(UserError, match=r"^q_target: next_value has shape \(3,\); \(B, 1\) or \(B, M\) is needed$"):
        losses.q_target(torch.zeros(3, 1), torch.ones(3, 1), torch.zeros(3), gamma=0.5)
