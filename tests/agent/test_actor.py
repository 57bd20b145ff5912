"""Densities, samples and bounds of the squashed Gaussian and of mixtures of it."""

import math
import re

import numpy as np
import pytest
import torch
from scipy import integrate

from agent.actor import DiagGaussianActor, GaussianMixtureActor
from agent.networks.distributions import Categorical, SquashedMixture, SquashedNormal
from agent.networks.mlp import mlp
from utils import UserError


@pytest.mark.parametrize(("mu", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-0.5, 0.7)])
def test_density_integrates_to_one_and_gives_the_samples_mean(mu: float, log_std: float) -> None:
    dist = SquashedNormal(torch.tensor([[mu]]).double(), log_std=torch.tensor([[log_std]]).double())

    def density(action: float) -> float:
        return dist.log_prob(torch.tensor([[action]], dtype=torch.float64)).exp().item()

    mass, _ = integrate.quad(density, -1, 1, limit=200)
    mean, _ = integrate.quad(lambda action: action * density(action), -1, 1, limit=200)
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal((200_000, 1)))
    assert mass == pytest.approx(1, abs=1e-6)
    assert mean == pytest.approx(dist.sample(noise).mean().item(), abs=5e-3)


def test_both_ways_to_the_log_prob_agree() -> None:
    dist = SquashedNormal(torch.randn(64, 3).double(), log_std=torch.randn(64, 3).double().clamp(-2, 0.5))
    action, log_prob = dist.rsample_with_log_prob(torch.randn(64, 3).double())
    torch.testing.assert_close(dist.log_prob(action), log_prob, rtol=1e-6, atol=1e-6)


def test_log_prob_is_finite_where_tanh_saturates() -> None:
    dist = SquashedNormal(torch.full((1, 2), 30.0), log_std=torch.full((1, 2), 2.0))
    action, log_prob = dist.rsample_with_log_prob(torch.zeros(1, 2))
    assert (action == 1).all()
    # log N(30; 30, e^2) - log(1 - tanh^2 30), and 1 - tanh^2 u is 4 exp(-2u) for large u
    expected = 2 * (-2 - 0.5 * math.log(2 * math.pi) - (math.log(4) - 60))
    torch.testing.assert_close(log_prob, torch.tensor([[expected]]))
    assert torch.isfinite(dist.log_prob(action)).all()


@pytest.mark.parametrize("shape", [(3,), (1, 3), (5, 1), (5, 4), (4, 3), ()])
def test_rows_and_dimensions_do_not_share_noise(shape: tuple[int, ...]) -> None:
    normal = SquashedNormal(torch.zeros(5, 3), log_std=torch.zeros(5, 3))
    mixture = SquashedMixture(torch.zeros(5, 2), torch.zeros(5, 2, 3), torch.zeros(5, 2, 3))
    for sample, width in ((normal.sample, 0), (normal.rsample_with_log_prob, 0), (mixture.sample, 1)):
        noise = torch.zeros(*shape[:-1], shape[-1] + width) if shape else torch.zeros(())
        needed = re.escape(f"noise of shape {tuple(noise.shape)}, and (5, {3 + width}) is needed")
        with pytest.raises(UserError, match=needed):
            sample(noise)
    with pytest.raises(UserError, match=r"noise of shape \(1,\), and \(5, 1\) is needed"):
        Categorical(torch.zeros(5, 3)).sample(torch.zeros(1))


def test_a_row_can_have_several_samples() -> None:
    dist = SquashedNormal(torch.zeros(5, 3), log_std=torch.zeros(5, 3))
    noise = torch.randn(2, 5, 3)
    assert torch.equal(dist.sample(noise), torch.tanh(noise))
    assert dist.rsample_with_log_prob(noise)[1].shape == (2, 5, 1)


def test_log_std_stays_in_its_bounds_and_reaches_them() -> None:
    actor = DiagGaussianActor(3, 2, hidden_dim=8, hidden_depth=1, log_std_bounds=(-5, 2))
    dist = actor(torch.randn(100, 3) * 1e4)
    assert dist.log_std.min() == -5
    assert dist.log_std.max() == 2
    torch.testing.assert_close(actor(torch.zeros(1, 3)).log_std, torch.full((1, 2), -1.5))  # s = 0 gives the middle


def mixture(dtype: torch.dtype = torch.float64) -> SquashedMixture:
    """One dimension, three components of unequal weight, one of them saturated."""
    logits = torch.tensor([[0.3, -1.0, 1.2]], dtype=dtype)
    mu = torch.tensor([[[-1.0], [0.2], [1.5]]], dtype=dtype)
    return SquashedMixture(logits, mu, torch.tensor([[[-0.5], [-1.5], [0.0]]], dtype=dtype))


def test_a_mixtures_density_integrates_to_one_and_gives_its_samples_moments() -> None:
    dist = mixture()

    def density(action: float) -> float:
        return dist.log_prob(torch.tensor([[action]], dtype=torch.float64)).exp().item()

    mass, _ = integrate.quad(density, -1, 1, limit=400)
    moments = [integrate.quad(lambda a, n=n: a**n * density(a), -1, 1, limit=400)[0] for n in (1, 2)]
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal((200_000, 2)))
    many = SquashedMixture(*(t.expand(200_000, *t.shape[1:]) for t in (dist.log_weight, dist.mu, dist.log_std)))
    samples = many.sample(noise)
    assert mass == pytest.approx(1, abs=1e-6)
    assert moments == pytest.approx([samples.mean().item(), samples.square().mean().item()], abs=5e-3)


def test_a_mixtures_log_prob_equals_the_sum_over_components_in_two_dimensions() -> None:
    rng = np.random.default_rng(1)
    logits, mu, log_std = rng.normal(size=(1, 2)), rng.normal(size=(1, 2, 2)), rng.normal(size=(1, 2, 2)) / 3
    action = np.array([[0.3, -0.8]])
    u, weights = np.arctanh(action[0]), np.exp(logits[0]) / np.exp(logits[0]).sum()
    normals = np.exp(-0.5 * ((u - mu[0]) / np.exp(log_std[0])) ** 2) / (np.exp(log_std[0]) * np.sqrt(2 * np.pi))
    expected = np.log((weights * normals.prod(1)).sum() / (1 - action[0] ** 2).prod())
    dist = SquashedMixture(*(torch.from_numpy(part) for part in (logits, mu, log_std)))
    assert dist.log_prob(torch.from_numpy(action)).item() == pytest.approx(expected)


def test_components_are_drawn_by_their_weights() -> None:
    logits = torch.log(torch.tensor([[0.7, 0.1, 0.2]])).expand(100_000, 3)
    mu = torch.tensor([[-2.0], [0.0], [2.0]]).expand(100_000, 3, 1)
    u = SquashedMixture(logits, mu, torch.full_like(mu, -20.0)).sample_u(torch.randn(100_000, 2))
    shares = [(u - centre).abs().lt(0.5).float().mean().item() for centre in (-2, 0, 2)]
    assert shares == pytest.approx([0.7, 0.1, 0.2], abs=0.01)


def test_a_mixtures_greedy_action_is_the_component_rated_best() -> None:
    mu = torch.tensor([[[0.1], [0.9]], [[0.2], [-0.7]]])
    dist = SquashedMixture(torch.zeros(2, 2), mu, torch.zeros(2, 2, 1))
    rated = dist.greedy(lambda actions: torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    torch.testing.assert_close(rated, torch.tanh(torch.tensor([[0.1], [-0.7]])))


def test_clamped_log_std_is_cut_off_and_one_component_is_a_gaussian() -> None:
    actor = GaussianMixtureActor(3, 2, hidden_dim=8, hidden_depth=1, num_components=1, log_std_bounds=(-3, 1))
    obs = 1e3 * torch.randn(50, 3)
    dist = actor(obs)
    assert isinstance(dist, SquashedNormal)
    assert actor.noise_dim == 2
    torch.testing.assert_close(dist.log_std, actor.trunk(obs)[:, 3:].clamp(-3, 1))
    assert actor.trunk.layers[-1].bias.shape == (5,)  # K (2 |A| + 1)


def test_tanh_mu_keeps_the_greedy_action_below_tanh_1() -> None:
    actor = DiagGaussianActor(3, 2, hidden_dim=8, hidden_depth=1, log_std_bounds=(-5, 2), tanh_mu=True)
    greedy = actor(1e4 * torch.randn(50, 3)).mean
    assert greedy.abs().max().item() == pytest.approx(math.tanh(1))


@pytest.mark.parametrize("num_members", [None, 3])
def test_initialisation_of_layers(num_members: int | None) -> None:
    layers = mlp(50, 64, 4, 1, num_members, init="torch", last_init_bound=3e-3).layers
    for layer, bound in zip(layers, (1 / math.sqrt(50), 3e-3), strict=True):
        for parameter in (layer.weight, layer.bias):
            assert 0.5 * bound < parameter.abs().max().item() <= bound


def test_gradients_of_a_sample_and_its_log_density_are_autograds() -> None:
    torch.manual_seed(0)
    mu, log_std, noise = (torch.randn(6, 3).double() for _ in range(3))
    inputs = (3 * mu).requires_grad_(), (log_std - 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, s: SquashedNormal(m, log_std=s).rsample_with_log_prob(noise), inputs)
    dist = SquashedNormal(inputs[0], log_std=inputs[1])
    action, log_prob = dist.rsample_with_log_prob(noise)
    u = dist.mu + dist.std * noise
    torch.testing.assert_close(action, torch.tanh(u))
    torch.testing.assert_close(log_prob, dist.log_prob_u(u))


def test_a_deviation_is_not_taken_for_its_logarithm() -> None:
    mu, std = torch.zeros(1, 2), torch.ones(1, 2)
    with pytest.raises(TypeError):
        SquashedNormal(mu, std)  # type: ignore[misc]  # as in other libraries
