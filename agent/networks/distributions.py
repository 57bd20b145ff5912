"""Distributions of actions. They are a Gaussian, or a mixture of Gaussians, squashed by tanh; or of discrete actions.

A distribution turns noise (standard normal, `actor.noise_dim` numbers per row) into samples, so an update is a function
of tensors alone. `u` is an action before squashing, `a = tanh(u)`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
Rate = Callable[[Tensor], Tensor]  # actions (B, K, |A|) -> their values (B, K)


def tanh_log_det(u: Tensor) -> Tensor:
    """log |d tanh(u)/du| = log(1 - tanh(u)^2), in a form that does not round to log 0 for large |u|."""
    return 2 * (math.log(2) - u - F.softplus(-2 * u))


def normal_log_prob(u: Tensor, mu: Tensor, log_std: Tensor) -> Tensor:
    """log N(u; mu, exp(log_std)^2), elementwise."""
    return -0.5 * ((u - mu) * torch.exp(-log_std)).square() - log_std - LOG_SQRT_2PI


def inverse_tanh(action: Tensor) -> Tensor:
    """Returns u of an action in [-1, 1]; moves -1 and 1 to the nearest number inside."""
    inside = 1 - torch.finfo(action.dtype).eps / 2
    return torch.atanh(action.clamp(-inside, inside))


def choose(log_probs: Tensor, noise: Tensor) -> Tensor:
    """Draws one of K choices by their log-probabilities (B, K), from standard normal noise (B, 1): (B, 1), int64."""
    uniform = torch.special.ndtr(noise)
    return (log_probs.exp().cumsum(-1) < uniform).sum(-1, keepdim=True).clamp(max=log_probs.shape[-1] - 1)


class _Squashed(ABC):
    """A distribution of tanh(u); `log_std` is the log standard deviation of u, or of its components."""

    log_std: Tensor

    @abstractmethod
    def sample_u(self, noise: Tensor) -> Tensor:
        """Returns a sample of u, (B, |A|), detached, computed from noise (B, noise_dim)."""

    def sample(self, noise: Tensor) -> Tensor:
        """Returns a sampled action, (B, |A|), detached."""
        return torch.tanh(self.sample_u(noise))

    @abstractmethod
    def log_prob_u(self, u: Tensor) -> Tensor:
        """Returns the log-density (B, 1) of the action tanh(u), u (B, |A|)."""

    def log_prob(self, action: Tensor) -> Tensor:
        """Returns the log-density (B, 1) of actions (B, |A|) in [-1, 1]."""
        return self.log_prob_u(inverse_tanh(action))


class SquashedNormal(_Squashed):
    """The distribution of tanh(u), u ~ N(mu, exp(log_std)^2) in each dimension (arXiv 1801.01290, appendix C).

    mu and log_std are (B, |A|). log_std is keyword-only, so that no standard deviation is passed by mistake.
    """

    def __init__(self, mu: Tensor, *, log_std: Tensor):
        self.mu, self.log_std = mu, log_std

    @property
    def mean(self) -> Tensor:
        """tanh(mu), (B, |A|)."""
        return torch.tanh(self.mu)

    def greedy(self, rate: Rate) -> Tensor:
        return self.mean

    def first(self, num_rows: int) -> "SquashedNormal":
        return SquashedNormal(self.mu[:num_rows], log_std=self.log_std[:num_rows])

    def sample_u(self, noise: Tensor) -> Tensor:
        return (self.mu + self.log_std.exp() * noise).detach()

    def rsample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns a sampled action (B, |A|) and its log-density (B, 1), both differentiable in mu and log_std.

        Faster and more accurate than `log_prob(sample(noise))`, which has to invert tanh.
        """
        return _SampleWithLogProb.apply(self.mu, self.log_std, noise)

    def log_prob_u(self, u: Tensor) -> Tensor:
        return (normal_log_prob(u, self.mu, self.log_std) - tanh_log_det(u)).sum(-1, keepdim=True)


class _SampleWithLogProb(torch.autograd.Function):
    """a = tanh(u), u = mu + std noise, and log pi(a), as one node of autograd's graph in place of twenty.

    With tanh_log_det's form of log(1 - a^2), log pi(a) = sum(-noise^2 / 2 - log_std + 2 (u + softplus(-2u))) + const.
    So d log pi / du = 2a and, as u depends on log_std, d log pi / d log_std = 2a std noise - 1. Written out for speed,
    as in mlp.py and batch_norm.py.
    """

    @staticmethod
    def forward(ctx: Any, mu: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        scaled_noise = torch.exp(log_std) * noise
        u = mu + scaled_noise
        action = torch.tanh(u)
        # F.softplus(u, beta=-2) is softplus(-2u) / -2.
        terms = torch.sub(u, F.softplus(u, beta=-2), alpha=2).mul_(2)
        terms -= torch.addcmul(log_std, noise, noise, value=0.5)
        log_prob = terms.sum(-1, keepdim=True) - mu.shape[-1] * (LOG_SQRT_2PI + 2 * math.log(2))
        ctx.save_for_backward(action, scaled_noise)
        return action, log_prob

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_action: Tensor, grad_log_prob: Tensor) -> tuple[Tensor, Tensor, None]:
        action, scaled_noise = ctx.saved_tensors
        grad_u = torch.ops.aten.tanh_backward(grad_action, action).addcmul_(grad_log_prob, action, value=2)
        return grad_u, grad_u * scaled_noise - grad_log_prob, None


class SquashedMixture(_Squashed):
    """The distribution of tanh(u), u from a mixture of K diagonal Gaussians; logits (B, K), mu, log_std (B, K, |A|)."""

    def __init__(self, logits: Tensor, mu: Tensor, log_std: Tensor):
        self.log_weight = torch.log_softmax(logits, dim=-1)
        self.mu, self.log_std = mu, log_std

    def greedy(self, rate: Rate) -> Tensor:
        """Returns tanh(mu_k), (B, |A|), of the component k whose action `rate` rates highest."""
        actions = torch.tanh(self.mu)
        best = rate(actions).argmax(dim=1).view(-1, 1, 1)
        return actions.gather(1, best.expand(-1, -1, actions.shape[-1])).squeeze(1)

    def sample_u(self, noise: Tensor) -> Tensor:
        # The last column of noise (B, |A| + 1) chooses the component.
        with torch.no_grad():
            component = choose(self.log_weight, noise[:, -1:]).squeeze(-1)  # (B,)
            rows = torch.arange(len(component), device=component.device)
            return self.mu[rows, component] + self.log_std.exp()[rows, component] * noise[:, :-1]

    def log_prob_u(self, u: Tensor) -> Tensor:
        components = normal_log_prob(u.unsqueeze(1), self.mu, self.log_std).sum(-1)  # (B, K)
        mixture = torch.logsumexp(self.log_weight + components, dim=-1, keepdim=True)
        return mixture - tanh_log_det(u).sum(-1, keepdim=True)


class Categorical:
    """The distribution of discrete actions, which are integers from 0; `log_probs` are log pi(a|o), (B, |A|)."""

    def __init__(self, logits: Tensor):
        self.log_probs = torch.log_softmax(logits, dim=-1)

    def greedy(self, rate: Rate) -> Tensor:
        """Returns the most probable action, (B, 1), int64."""
        return self.log_probs.argmax(-1, keepdim=True)

    def sample(self, noise: Tensor) -> Tensor:
        """Returns a sampled action, (B, 1), int64, computed from noise (B, 1)."""
        return choose(self.log_probs, noise)
