"""Policies: a diagonal Gaussian squashed by tanh."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from agent.mlp import mlp
from utils import Bounds, NonNegativeInt, PositiveInt

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def tanh_log_det(u: torch.Tensor) -> torch.Tensor:
    """log |d tanh(u)/du| = log(1 - tanh(u)^2), in a form that does not round to log 0 where |u| is large."""
    return 2 * (math.log(2) - u - F.softplus(-2 * u))


class SquashedNormal:
    """The law of tanh(u), u ~ N(mu, exp(log_std)^2), independent in each dimension (arXiv 1801.01290, appendix C).

    Args:
        mu, log_std: (B, |A|), before the squashing.
    """

    def __init__(self, mu: torch.Tensor, log_std: torch.Tensor):
        self.mu = mu
        self.log_std = log_std

    @property
    def mean(self) -> torch.Tensor:
        """The greedy action tanh(mu), (B, |A|)."""
        return torch.tanh(self.mu)

    @property
    def std(self) -> torch.Tensor:
        """The deviation before the squashing, (B, |A|)."""
        return self.log_std.exp()

    def rsample(self, noise: torch.Tensor) -> torch.Tensor:
        """tanh(mu + std * noise), differentiable in mu and log_std; `noise` is standard normal, (B, |A|)."""
        return torch.tanh(self.mu + self.std * noise)

    def rsample_with_log_prob(self, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """An action (B, |A|) and its log-density (B, 1), both differentiable in mu and log_std.

        Faster and more exact than `log_prob(rsample(noise))`, which has to invert the tanh.
        """
        u = self.mu + self.std * noise
        log_normal = -0.5 * noise.square() - self.log_std - LOG_SQRT_2PI
        return torch.tanh(u), (log_normal - tanh_log_det(u)).sum(-1, keepdim=True)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """The log-density (B, 1) of actions (B, |A|) in [-1, 1]; at the very ends, of the nearest number inside."""
        inside = 1 - torch.finfo(action.dtype).eps / 2
        u = torch.atanh(action.clamp(-inside, inside))
        log_normal = -0.5 * ((u - self.mu) / self.std).square() - self.log_std - LOG_SQRT_2PI
        return (log_normal - tanh_log_det(u)).sum(-1, keepdim=True)


class DiagGaussianActor(nn.Module):
    """An MLP from an observation to a SquashedNormal.

    Args:
        obs_dim, action_dim: widths of observation and action.
        hidden_dim, hidden_depth: of the hidden layers.
        log_std_bounds: (lo, hi); the network's s gives log_std = lo + (hi - lo) / 2 * (tanh(s) + 1).
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_dim: PositiveInt,
        hidden_depth: NonNegativeInt,
        log_std_bounds: Bounds,
    ):
        super().__init__()
        self.log_std_bounds = log_std_bounds
        self.trunk = mlp(obs_dim, hidden_dim, 2 * action_dim, hidden_depth)

    def forward(self, obs: torch.Tensor) -> SquashedNormal:
        mu, s = self.trunk(obs).chunk(2, dim=-1)
        lo, hi = self.log_std_bounds
        return SquashedNormal(mu, lo + 0.5 * (hi - lo) * (torch.tanh(s) + 1))
