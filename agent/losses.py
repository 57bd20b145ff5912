"""The equations, as pure functions of tensors. Noise comes in with the samples; nothing here draws or stores.

Shapes: B transitions, N critics. Values and log-probabilities are (B, 1), critics' values (N, B, 1); losses are
scalars. Equations are numbered as in arXiv 1812.05905 (SAC with a learned temperature).
"""

import torch


def soft_q_target(
    reward: torch.Tensor,
    not_done: torch.Tensor,
    discount: float,
    next_q: torch.Tensor,
    next_log_prob: torch.Tensor,
    alpha: torch.Tensor,
) -> torch.Tensor:
    """y = r + gamma (1 - d) (min_i Q'_i(o', a') - alpha log pi(a'|o')), with a' ~ pi(o').  (3), (5)

    Args:
        reward, not_done, next_log_prob: (B, 1); not_done is 0 where the episode terminated.
        discount: gamma.
        next_q: the target critics' values of (o', a'), (N, B, 1).
        alpha: the temperature, scalar.

    Returns:
        (B, 1). Call it without gradients: the target is a constant.
    """
    next_v = next_q.amin(dim=0) - alpha * next_log_prob
    return reward + discount * not_done * next_v


def critic_loss(q: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """sum_i mean_B (Q_i - y)^2: each critic's mean squared error, summed, without the 1/2 of (5)."""
    return (q - target).square().mean(dim=(1, 2)).sum()


def actor_loss(log_prob: torch.Tensor, q: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """mean_B (alpha log pi(a|o) - min_i Q_i(o, a)), a ~ pi(o) reparameterised, alpha constant.  (7)"""
    return (alpha * log_prob - q.amin(dim=0)).mean()


def temperature_loss(alpha: torch.Tensor, log_prob: torch.Tensor, target_entropy: float) -> torch.Tensor:
    """mean_B alpha (-log pi(a|o) - H), gradient in alpha alone: it grows while the entropy is below H.  (18)"""
    return (alpha * (-log_prob - target_entropy).detach()).mean()
