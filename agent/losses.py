"""The equations, as pure functions of tensors. Noise comes in with the samples; nothing here draws or stores.

Shapes: B transitions, N critics. Rewards, values and log-probabilities are (B, 1), critics' values (N, B, 1); losses
are scalars. Equations: [L] arXiv 1812.05905 (a learned temperature), [V] arXiv 1801.01290 (a value network).
"""

import math

import torch
import torch.nn.functional as F


def minimum(q: torch.Tensor) -> torch.Tensor:
    """min_i Q_i(o, a), (N, B, 1) -> (B, 1); of equal values the gradient is one critic's."""
    return q.min(dim=0).values


def soft_q_target(
    reward: torch.Tensor,
    not_done: torch.Tensor,
    discount: float,
    next_q: torch.Tensor,
    next_log_prob: torch.Tensor,
    alpha: torch.Tensor,
) -> torch.Tensor:
    """y = r + gamma (1 - d) (min_i Q'_i(o', a') - alpha log pi(a'|o')), with a' ~ pi(o').  [L] (3), (5)

    Args:
        reward, not_done, next_log_prob: (B, 1); not_done is 0 where the episode terminated, else 1; over k steps reward
            is their discounted sum and not_done is gamma^(k-1).
        discount: gamma.
        next_q: the target critics' values of (o', a'), (N, B, 1).
        alpha: the temperature, scalar.

    Returns:
        (B, 1). Call it without gradients: the target is a constant.
    """
    return q_target(reward, not_done, discount, minimum(next_q) - alpha * next_log_prob)


def q_target(reward: torch.Tensor, not_done: torch.Tensor, discount: float, next_value: torch.Tensor) -> torch.Tensor:
    """y = r + gamma (1 - d) V'(o').  [V] (8)"""
    return torch.addcmul(reward, not_done, next_value, value=discount)


def value_target(
    q: torch.Tensor, log_prob: torch.Tensor, alpha: torch.Tensor, log_prior: torch.Tensor | float
) -> torch.Tensor:
    """min_i Q_i(o, a) - alpha log pi(a|o) + log p(a), a ~ pi(o).  [V] (3), (5)"""
    return minimum(q) - alpha * log_prob + log_prior


def squared_error(values: torch.Tensor, target: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
    """weight * sum_i mean_B (values_i - target)^2; critics' (N, B, 1) are summed over N, a value (B, 1) is one.

    [L] (5) and [V] (5), (7) have a weight of 1/2; system A has 1.
    """
    total = F.mse_loss(values, target.expand_as(values), reduction="sum")
    return total * (weight / target.numel())


def actor_loss(
    log_prob: torch.Tensor, q: torch.Tensor, alpha: torch.Tensor, log_prior: torch.Tensor | float = 0.0
) -> torch.Tensor:
    """mean_B (alpha log pi(a|o) - Q(o, a)), a ~ pi(o) reparameterised, alpha constant.  [L] (7), [V] (12)

    Args:
        log_prob, q: (B, 1), of the same sampled actions; q is the minimum over critics, or the first, plus log p(a)
            where the prior is not uniform.
    """
    return (alpha * log_prob - (q + log_prior if log_prior else q)).mean()


def likelihood_ratio_loss(
    log_prob: torch.Tensor,
    q: torch.Tensor,
    value: torch.Tensor,
    alpha: torch.Tensor,
    log_prior: torch.Tensor | float = 0.0,
) -> torch.Tensor:
    """mean_B log pi(u|o) stop(alpha log pi(u|o) - Q(o, a) + V(o) - log p(a)), a = tanh u, u ~ pi(o) constant.  [V] (11)

    Its gradient is that of the expected KL divergence for any policy with a density, mixtures too; V is a baseline.
    """
    return (log_prob * (alpha * log_prob - q + value - log_prior).detach()).mean()


def output_regulariser(mu: torch.Tensor, log_std: torch.Tensor, weight: float) -> torch.Tensor:
    """weight / 2 * (mean mu^2 + mean log_std^2), over rows, components and dimensions."""
    return 0.5 * weight * (mu.square().mean() + log_std.square().mean())


def temperature_loss(multiplier: torch.Tensor, entropy: torch.Tensor, target_entropy: float) -> torch.Tensor:
    """m (mean_B -log pi(a|o) - H), gradient in m alone: it grows while the entropy is below H.  [L] (18)

    Args:
        multiplier: m, alpha or its logarithm (see agent.temperature), scalar.
        entropy: mean_B -log pi(a|o), scalar, a constant.
    """
    return multiplier * (entropy - target_entropy)


def log_normal_prior(action: torch.Tensor) -> torch.Tensor:
    """log p(a) of a unit normal, (B, |A|) -> (B, 1)."""
    return (-0.5 * action.square() - 0.5 * math.log(2 * math.pi)).sum(-1, keepdim=True)
