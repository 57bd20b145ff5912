"""What an actor gives: the law of an action, a Gaussian or a mixture of Gaussians, squashed by tanh.

A distribution samples from noise that is given to it (standard normal, `actor.noise_dim` numbers a row), so that an
update is a function of tensors alone. `u` is an action before the squashing, `a = tanh(u)`.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


Rate = Callable[[torch.Tensor], torch.Tensor]  # actions (B, K, |A|) -> how good each is, (B, K)


def tanh_log_det(u: torch.Tensor) -> torch.Tensor:
    """log |d tanh(u)/du| = log(1 - tanh(u)^2), in a form that does not round to log 0 where |u| is large."""
    return 2 * (math.log(2) - u - F.softplus(-2 * u))


def normal_log_prob(u: torch.Tensor, mu: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """log N(u; mu, exp(log_std)^2), elementwise."""
    return -0.5 * ((u - mu) * torch.exp(-log_std)).square() - log_std - LOG_SQRT_2PI


def inverse_tanh(action: torch.Tensor) -> torch.Tensor:
    """u of an action in [-1, 1]; at the very ends, of the nearest number inside."""
    inside = 1 - torch.finfo(action.dtype).eps / 2
    return torch.atanh(action.clamp(-inside, inside))


class SquashedNormal:
    """The law of tanh(u), u ~ N(mu, exp(log_std)^2), independent in each dimension (arXiv 1801.01290, appendix C).

    Args:
        mu, log_std: (B, |A|), before the squashing. The logarithm is named where it is given: others take a deviation.
    """

    def __init__(self, mu: torch.Tensor, *, log_std: torch.Tensor):
        self.mu = mu
        self.log_std = log_std

    @property
    def mean(self) -> torch.Tensor:
        """tanh(mu), (B, |A|)."""
        return torch.tanh(self.mu)

    def greedy(self, rate: Rate) -> torch.Tensor:
        """The action that evaluation takes, tanh(mu); there is no other to rate it against."""
        return self.mean

    def first(self, num_rows: int) -> "SquashedNormal":
        """The law of the first rows alone."""
        return SquashedNormal(self.mu[:num_rows], log_std=self.log_std[:num_rows])

    @property
    def std(self) -> torch.Tensor:
        """The deviation before the squashing, (B, |A|)."""
        return self.log_std.exp()

    def sample_u(self, noise: torch.Tensor) -> torch.Tensor:
        """u = mu + std * noise, (B, |A|), a constant."""
        return (self.mu + self.std * noise).detach()

    def sample(self, noise: torch.Tensor) -> torch.Tensor:
        """An action, (B, |A|), a constant."""
        return torch.tanh(self.sample_u(noise))

    def rsample_with_log_prob(self, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """An action (B, |A|) and its log-density (B, 1), both differentiable in mu and log_std.

        Faster and more exact than `log_prob(sample(noise))`, which has to invert the tanh.
        """
        return _SampleWithLogProb.apply(self.mu, self.log_std, noise)

    def log_prob_u(self, u: torch.Tensor) -> torch.Tensor:
        """The log-density (B, 1) of the action tanh(u), u (B, |A|)."""
        return (normal_log_prob(u, self.mu, self.log_std) - tanh_log_det(u)).sum(-1, keepdim=True)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """The log-density (B, 1) of actions (B, |A|) in [-1, 1]."""
        return self.log_prob_u(inverse_tanh(action))


class _SampleWithLogProb(torch.autograd.Function):
    """a = tanh(u), u = mu + std noise, and log pi(a), with their gradients written out: one node for twenty.

    With log(1 - a^2) in tanh_log_det's form, log pi(a) = sum(-noise^2 / 2 - log_std + 2 (u + softplus(-2u))) and a
    constant; in the gradients, d log pi / du = 2a, and with u's share on top d log pi / d log_std = 2a std noise - 1.
    """

    @staticmethod
    def forward(
        ctx: Any, mu: torch.Tensor, log_std: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        deviation = torch.exp(log_std) * noise
        u = mu + deviation
        action = torch.tanh(u)
        # F.softplus(u, beta=-2) is softplus(-2u) / -2.
        terms = torch.sub(u, F.softplus(u, beta=-2), alpha=2).mul_(2)
        terms -= torch.addcmul(log_std, noise, noise, value=0.5)
        log_prob = terms.sum(-1, keepdim=True) - mu.shape[-1] * (LOG_SQRT_2PI + 2 * math.log(2))
        ctx.save_for_backward(action, deviation)
        return action, log_prob

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_action: torch.Tensor, grad_log_prob: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        action, deviation = ctx.saved_tensors
        grad_u = torch.ops.aten.tanh_backward(grad_action, action).addcmul_(grad_log_prob, action, value=2)
        return grad_u, grad_u * deviation - grad_log_prob, None


class SquashedMixture:
    """The law of tanh(u), u from a mixture of K diagonal Gaussians.

    Args:
        logits: (B, K); their softmax is the components' weights.
        mu, log_std: (B, K, |A|), before the squashing.
    """

    def __init__(self, logits: torch.Tensor, mu: torch.Tensor, log_std: torch.Tensor):
        self.log_weight = torch.log_softmax(logits, dim=-1)
        self.mu = mu
        self.log_std = log_std

    def greedy(self, rate: Rate) -> torch.Tensor:
        """tanh(mu_k) of the component that is rated best, (B, |A|)."""
        actions = torch.tanh(self.mu)
        best = rate(actions).argmax(dim=1).view(-1, 1, 1)
        return actions.gather(1, best.expand(-1, -1, actions.shape[-1])).squeeze(1)

    @property
    def std(self) -> torch.Tensor:
        """The components' deviations, (B, K, |A|)."""
        return self.log_std.exp()

    def sample_u(self, noise: torch.Tensor) -> torch.Tensor:
        """u, (B, |A|), a constant, from noise (B, |A| + 1), whose last column picks the component."""
        with torch.no_grad():
            uniform = torch.special.ndtr(noise[:, -1:])
            component = (self.log_weight.exp().cumsum(-1) < uniform).sum(-1).clamp(max=self.mu.shape[1] - 1)  # (B,)
            rows = torch.arange(len(component), device=component.device)
            return self.mu[rows, component] + self.std[rows, component] * noise[:, :-1]

    def sample(self, noise: torch.Tensor) -> torch.Tensor:
        """An action, (B, |A|), a constant."""
        return torch.tanh(self.sample_u(noise))

    def log_prob_u(self, u: torch.Tensor) -> torch.Tensor:
        """The log-density (B, 1) of the action tanh(u), u (B, |A|)."""
        components = normal_log_prob(u.unsqueeze(1), self.mu, self.log_std).sum(-1)  # (B, K)
        mixture = torch.logsumexp(self.log_weight + components, dim=-1, keepdim=True)
        return mixture - tanh_log_det(u).sum(-1, keepdim=True)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """The log-density (B, 1) of actions (B, |A|) in [-1, 1]."""
        return self.log_prob_u(inverse_tanh(action))
