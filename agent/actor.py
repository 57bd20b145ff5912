"""Actors. They map observations to a Gaussian, or a mixture of Gaussians, squashed by tanh; or to discrete actions."""

from typing import Literal

import torch
from torch import Tensor, nn

from agent.networks.distributions import Categorical, SquashedMixture, SquashedNormal
from agent.networks.mlp import Init, Shape, build_network
from settings.types import Bounds, Factory, NonNegativeInt, PositiveFloat, PositiveInt

LogStdLimit = Literal["tanh", "clamp"]


def limit_log_std(s: Tensor, bounds: tuple[float, float], limit: LogStdLimit) -> Tensor:
    """Limits a network's output to the bounds of log_std, smoothly by tanh or by clamping."""
    lo, hi = bounds
    return 0.5 * (lo + hi) + 0.5 * (hi - lo) * torch.tanh(s) if limit == "tanh" else s.clamp(lo, hi)


class DiagGaussianActor(nn.Module):
    """Maps an observation to a SquashedNormal.

    With `tanh_mu`, mu is squashed before sampling too; the greedy action then stays below tanh(1) = 0.76. `network` is
    a factory (agent.networks.residual); None: the plain MLP.
    """

    def __init__(
        self,
        obs_dim: PositiveInt,
        action_dim: PositiveInt,
        hidden_dim: PositiveInt,
        hidden_depth: NonNegativeInt,
        log_std_bounds: Bounds,
        log_std_limit: LogStdLimit = "tanh",
        tanh_mu: bool = False,
        init: Init = "orthogonal",
        last_init_bound: PositiveFloat | None = None,
        network: Factory | None = None,
    ):
        super().__init__()
        self.acts_alone = True  # the greedy action needs no critic, and samples carry a gradient
        self.noise_dim, self.tanh_mu = action_dim, tanh_mu
        self.log_std_bounds, self.log_std_limit = log_std_bounds, log_std_limit
        shape = Shape(obs_dim, hidden_dim, 2 * action_dim, hidden_depth, None, init, last_init_bound)
        self.trunk = build_network(network, shape)

    def forward(self, obs: Tensor) -> SquashedNormal:
        mu, s = self.trunk(obs).chunk(2, dim=-1)
        log_std = limit_log_std(s, self.log_std_bounds, self.log_std_limit)
        return SquashedNormal(torch.tanh(mu) if self.tanh_mu else mu, log_std=log_std)


class GaussianMixtureActor(nn.Module):
    """Maps an observation to a SquashedMixture or, with one component, to a SquashedNormal; see DiagGaussianActor."""

    def __init__(
        self,
        obs_dim: PositiveInt,
        action_dim: PositiveInt,
        hidden_dim: PositiveInt,
        hidden_depth: NonNegativeInt,
        num_components: PositiveInt,
        log_std_bounds: Bounds,
        log_std_limit: LogStdLimit = "clamp",
        init: Init = "torch",
        last_init_bound: PositiveFloat | None = None,
        network: Factory | None = None,
    ):
        super().__init__()
        self.acts_alone = num_components == 1
        self.noise_dim = action_dim if self.acts_alone else action_dim + 1
        self.shape = (num_components, 2 * action_dim + 1)
        self.log_std_bounds, self.log_std_limit = log_std_bounds, log_std_limit
        out_dim = num_components * (2 * action_dim + 1)
        shape = Shape(obs_dim, hidden_dim, out_dim, hidden_depth, None, init, last_init_bound)
        self.trunk = build_network(network, shape)

    def forward(self, obs: Tensor) -> SquashedMixture | SquashedNormal:
        head = self.trunk(obs).unflatten(-1, self.shape)  # (B, K, 2|A| + 1)
        mu, s = head[..., 1:].chunk(2, dim=-1)
        log_std = limit_log_std(s, self.log_std_bounds, self.log_std_limit)
        if self.acts_alone:
            return SquashedNormal(mu[:, 0], log_std=log_std[:, 0])
        return SquashedMixture(head[..., 0], mu, log_std)


class CategoricalActor(nn.Module):
    """Maps an observation to a Categorical; `action_dim` is the number of actions. Arguments: see DiagGaussianActor."""

    def __init__(
        self,
        obs_dim: PositiveInt,
        action_dim: PositiveInt,
        hidden_dim: PositiveInt,
        hidden_depth: NonNegativeInt,
        init: Init = "orthogonal",
        last_init_bound: PositiveFloat | None = None,
        network: Factory | None = None,
    ):
        super().__init__()
        self.acts_alone, self.noise_dim = True, 1
        shape = Shape(obs_dim, hidden_dim, action_dim, hidden_depth, None, init, last_init_bound)
        self.trunk = build_network(network, shape)

    def forward(self, obs: Tensor) -> Categorical:
        return Categorical(self.trunk(obs))
