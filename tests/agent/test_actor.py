"""Densities, samples and bounds of the squashed Gaussian and of mixtures of it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate

from agent.actor import DiagGaussianActor, GaussianMixtureActor
from agent.networks.distributions import SquashedMixture, SquashedNormal


def of_rows(count: int, *parts: list[float] | list[list[float]]) -> list[torch.Tensor]:
    return [torch.tensor([part], dtype=torch.float64).expand(count, *np.shape(part)) for part in parts]


def mixture(count: int) -> SquashedMixture:
    """One dimension, three components of unequal weight, one of them saturated."""
    return SquashedMixture(*of_rows(count, [0.3, -1.0, 1.2], [[-1.0], [0.2], [1.5]], [[-0.5], [-1.5], [0.0]]))


def normal(count: int, mu: float, log_std: float) -> SquashedNormal:
    mean, deviation = of_rows(count, [mu], [log_std])
    return SquashedNormal(mean, log_std=deviation)


@pytest.mark.parametrize("law", [mixture, lambda n: normal(n, 0.0, 0.0), lambda n: normal(n, 1.5, -1.0)])
def test_a_density_integrates_to_one_and_gives_its_samples_moments(law: Callable[[int], Any]) -> None:
    dist = law(1)

    def density(action: float) -> float:
        return dist.log_prob(torch.tensor([[action]], dtype=torch.float64)).exp().item()

    moments = [integrate.quad(lambda a, n=n: a**n * density(a), -1, 1, limit=400)[0] for n in (0, 1, 2)]
    many = law(200_000)
    width = 2 if isinstance(dist, SquashedMixture) else 1
    samples = many.sample(torch.from_numpy(np.random.default_rng(0).standard_normal((200_000, width))))
    assert moments[0] == pytest.approx(1, abs=1e-6)
    assert moments[1:] == pytest.approx([samples.mean().item(), samples.square().mean().item()], abs=5e-3)


def test_log_prob_is_finite_where_tanh_saturates() -> None:
    dist = SquashedNormal(torch.full((1, 2), 30.0), log_std=torch.full((1, 2), 2.0))
    action, log_prob = dist.rsample_with_log_prob(torch.zeros(1, 2))
    assert (action == 1).all()
    # log N(30; 30, e^2) - log(1 - tanh^2 30), and 1 - tanh^2 u is 4 exp(-2u) for large u
    expected = 2 * (-2 - 0.5 * math.log(2 * math.pi) - (math.log(4) - 60))
    torch.testing.assert_close(log_prob, torch.tensor([[expected]]))
    assert torch.isfinite(dist.log_prob(action)).all()


def test_gradients_of_a_sample_and_its_log_density_are_autograds() -> None:
    torch.manual_seed(0)
    mu, log_std, noise = (torch.randn(6, 3).double() for _ in range(3))
    inputs = (3 * mu).requires_grad_(), (log_std - 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, s: SquashedNormal(m, log_std=s).rsample_with_log_prob(noise), inputs)
    dist = SquashedNormal(inputs[0], log_std=inputs[1])
    action, log_prob = dist.rsample_with_log_prob(noise)
    u = dist.mu + dist.log_std.exp() * noise
    torch.testing.assert_close(action, torch.tanh(u))
    torch.testing.assert_close(log_prob, dist.log_prob_u(u))
    mild = SquashedNormal(mu, log_std=log_std.clamp(-2, 0.5))
    action, log_prob = mild.rsample_with_log_prob(noise)
    torch.testing.assert_close(mild.log_prob(action), log_prob, rtol=1e-6, atol=1e-6)  # through the inverse of tanh


def test_log_std_stays_in_its_bounds_and_one_component_is_a_gaussian() -> None:
    obs = 1e4 * torch.randn(100, 3)
    actor = DiagGaussianActor(3, 2, hidden_dim=8, hidden_depth=1, log_std_bounds=(-5, 2), tanh_mu=True)
    dist = actor(obs)
    assert (dist.log_std.min(), dist.log_std.max()) == (-5, 2)
    torch.testing.assert_close(actor(torch.zeros(1, 3)).log_std, torch.full((1, 2), -1.5))  # s = 0 gives the middle
    assert dist.mean.abs().max().item() == pytest.approx(math.tanh(1))
    one = GaussianMixtureActor(3, 2, hidden_dim=8, hidden_depth=1, num_components=1, log_std_bounds=(-3, 1))
    assert isinstance(one(obs), SquashedNormal) and one.noise_dim == 2
    torch.testing.assert_close(one(obs).log_std, one.trunk(obs)[:, 3:].clamp(-3, 1))
