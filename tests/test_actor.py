"""The squashed Gaussian's density, samples and bounds."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate

from agent.actor import DiagGaussianActor, SquashedNormal


@pytest.mark.parametrize(("mu", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-0.5, 0.7)])
def test_density_integrates_to_one_and_gives_the_samples_mean(mu: float, log_std: float) -> None:
    dist = SquashedNormal(torch.tensor([[mu]], dtype=torch.float64), torch.tensor([[log_std]], dtype=torch.float64))

    def density(action: float) -> float:
        return dist.log_prob(torch.tensor([[action]], dtype=torch.float64)).exp().item()

    mass, _ = integrate.quad(density, -1, 1, limit=200)
    mean, _ = integrate.quad(lambda action: action * density(action), -1, 1, limit=200)
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal((200_000, 1)))
    assert mass == pytest.approx(1, abs=1e-6)
    assert mean == pytest.approx(dist.sample(noise).mean().item(), abs=5e-3)


def test_both_ways_to_the_log_prob_agree() -> None:
    dist = SquashedNormal(torch.randn(64, 3).double(), torch.randn(64, 3).double().clamp(-2, 0.5))
    action, log_prob = dist.rsample_with_log_prob(torch.randn(64, 3).double())
    torch.testing.assert_close(dist.log_prob(action), log_prob, rtol=1e-6, atol=1e-6)


def test_log_prob_is_finite_where_tanh_saturates() -> None:
    dist = SquashedNormal(torch.full((1, 2), 30.0), torch.full((1, 2), 2.0))
    action, log_prob = dist.rsample_with_log_prob(torch.zeros(1, 2))
    assert (action == 1).all()
    # log N(30; 30, e^2) - log(1 - tanh^2 30), and 1 - tanh^2 u is 4 exp(-2u) for large u
    expected = 2 * (-2 - 0.5 * math.log(2 * math.pi) - (math.log(4) - 60))
    torch.testing.assert_close(log_prob, torch.tensor([[expected]]))
    assert torch.isfinite(dist.log_prob(action)).all()


def test_log_std_stays_in_its_bounds_and_reaches_them() -> None:
    actor = DiagGaussianActor(3, 2, hidden_dim=8, hidden_depth=1, log_std_bounds=(-5, 2))
    dist = actor(torch.randn(100, 3) * 1e4)
    assert dist.log_std.min() == -5
    assert dist.log_std.max() == 2
    torch.testing.assert_close(actor(torch.zeros(1, 3)).log_std, torch.full((1, 2), -1.5))  # s = 0 is the middle
