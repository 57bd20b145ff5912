"""The equations, as pure functions of tensors: they draw nothing and store nothing.

Shapes: B transitions, N critics. Rewards, values and log-probabilities are (B, 1), critics' values (N, B, 1); losses
are scalars. Equations: [L] arXiv 1812.05905 (a learned temperature), [V] arXiv 1801.01290 (a value network), [T] arXiv
2005.04269 (quantiles).
"""

import math

import torch
import torch.nn.functional as F

from utils import UserError


def minimum(q: torch.Tensor) -> torch.Tensor:
    """min_i Q_i(o, a), (N, B, 1) -> (B, 1); the gradient of equal values goes to one critic."""
    return q.min(dim=0).values


def mean(q: torch.Tensor) -> torch.Tensor:
    """mean_i Q_i(o, a), (N, B, 1) -> (B, 1)."""
    return q.mean(dim=0)


def first(q: torch.Tensor) -> torch.Tensor:
    """Q_1(o, a), (N, B, 1) -> (B, 1)."""
    return q[0]


def q_target(reward: torch.Tensor, discount: torch.Tensor, next_value: torch.Tensor, gamma: float) -> torch.Tensor:
    """y = r + gamma (1 - d) V'(o').  [V] (8); with V'(o') = min_i Q'_i(o', a') - alpha log pi(a'|o'), [L] (3), (5)

    Args:
        reward, discount: (B, 1), as in replay_buffer.Batch.
        next_value: (B, 1), or (B, M) samples of it.

    Returns:
        The target, in the shape of `next_value`. Call it without gradients: the target is a constant.
    """
    if next_value.dim() != 2:  # (B,) would be broadcast to (B, B)
        raise UserError(f"q_target: next_value has shape {tuple(next_value.shape)}; (B, 1) or (B, M) is needed")
    return torch.addcmul(reward, discount, next_value, value=gamma)


def value_target(
    q: torch.Tensor, log_prob: torch.Tensor, alpha: torch.Tensor, log_prior: torch.Tensor | float
) -> torch.Tensor:
    """Q(o, a) - alpha log pi(a|o) + log p(a), a ~ pi(o), all (B, 1); Q is min_i Q_i in the paper.  [V] (3), (5)"""
    return q - alpha * log_prob + log_prior


def expected_value(log_probs: torch.Tensor, q: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """V(o) = sum_a pi(a|o) (Q(o, a) - alpha log pi(a|o)), all actions (B, |A|) -> (B, 1).  arXiv 1910.07207 (10), (12)

    The actor's loss is -mean_B V(o), Q constant.
    """
    return (log_probs.exp() * (q - alpha * log_probs)).sum(-1, keepdim=True)


def squared_error(
    values: torch.Tensor, target: torch.Tensor, scale: float = 1.0, weight: torch.Tensor | None = None
) -> torch.Tensor:
    """scale * sum_i mean_B (values_i - target)^2, for critics' values (N, B, 1) or one value (B, 1).

    [L] (5) and [V] (5), (7) have a scale of 1/2; pytorch_sac has 1.

    Args:
        weight: (B,), constant weights of the rows in mean_B, which still divides by B; None is 1.
    """
    if weight is not None:
        return (weight.unsqueeze(-1) * (values - target.expand_as(values)).square()).sum() * (scale / target.numel())
    total = F.mse_loss(values, target.expand_as(values), reduction="sum")
    return total * (scale / target.numel())


def huber(values: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    """sum_i mean_B huber(target - values_i), linear beyond 1 (arXiv 2007.06049, appendix A); as `squared_error`."""
    errors = F.smooth_l1_loss(values, target.expand_as(values), reduction="none")
    errors = errors if weight is None else weight.unsqueeze(-1) * errors
    return errors.sum() / target.numel()


def td_error(values: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """mean_i |expected - values_i|, (B,), of critics' values (N, B, 1) and their expected target (B, 1)."""
    return (expected - values).abs().mean(0).squeeze(-1)


def actor_loss(log_prob: torch.Tensor, q: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """mean_B (alpha log pi(a|o) - Q(o, a)), a ~ pi(o) reparameterised, alpha constant.  [L] (7), [V] (12)

    Args:
        log_prob, q: (B, 1), for the same sampled actions; q is reduced over critics and, if the prior is not uniform,
            includes log p(a).
    """
    return (alpha * log_prob - q).mean()


def likelihood_ratio_loss(
    log_prob: torch.Tensor,
    q: torch.Tensor,
    value: torch.Tensor,
    alpha: torch.Tensor,
    log_prior: torch.Tensor | float = 0.0,
) -> torch.Tensor:
    """mean_B log pi(u|o) stop(alpha log pi(u|o) - Q(o, a) + V(o) - log p(a)), a = tanh u, u ~ pi(o) constant.  [V] (11)

    Its gradient equals that of the expected KL divergence for any policy with a density, mixtures too; V is a baseline.
    """
    return (log_prob * (alpha * log_prob - q + value - log_prior).detach()).mean()


def output_regulariser(mu: torch.Tensor, log_std: torch.Tensor, weight: float) -> torch.Tensor:
    """weight / 2 * (mean mu^2 + mean log_std^2), over rows, components and dimensions."""
    return 0.5 * weight * (mu.square().mean() + log_std.square().mean())


def temperature_loss(multiplier: torch.Tensor, entropy: torch.Tensor, target_entropy: float) -> torch.Tensor:
    """m (mean_B -log pi(a|o) - H), with a gradient in m only: a step raises m while the entropy is below H.  [L] (18)

    Args:
        multiplier: m, alpha or its logarithm (see agent.temperature), scalar.
        entropy: mean_B -log pi(a|o), scalar, a constant.
    """
    return multiplier * (entropy - target_entropy)


def log_normal_prior(action: torch.Tensor) -> torch.Tensor:
    """Returns log p(a) of a standard normal, (B, |A|) -> (B, 1)."""
    return (-0.5 * action.square() - 0.5 * math.log(2 * math.pi)).sum(-1, keepdim=True)


def truncated_pool(quantiles: torch.Tensor, drop_per_critic: int) -> torch.Tensor:
    """Pools all critics' quantiles (N, B, K) and drops the N drop_per_critic largest: (B, N (K - drop)), sorted.

    [T] (9), against overestimation.
    """
    num_critics, _, num_quantiles = quantiles.shape
    pool = quantiles.transpose(0, 1).flatten(1).sort(dim=1).values
    return pool[:, : num_critics * (num_quantiles - drop_per_critic)]


def quantile_huber(quantiles: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    """mean_i,B,k,m |tau_k - 1[delta < 0]| huber(delta), delta = target_m - quantile_ik, tau_k = (k + 1/2) / K.

    [T] (11), (12); the Huber loss is linear beyond 1. The mean over the critics i follows the paper's code.

    Args:
        quantiles: (N, B, K).
        target: samples of the return, (B, M), constants.
        weight: see `squared_error`.
    """
    count = quantiles.shape[-1]
    tau = (torch.arange(count, device=quantiles.device, dtype=quantiles.dtype) + 0.5) / count
    total = quantiles.new_zeros(())
    for critic_quantiles in quantiles:  # one critic at a time: B K M differences fit into a cache
        delta = target.unsqueeze(1) - critic_quantiles.unsqueeze(2)  # (B, K, M)
        clipped = delta.detach().clamp(-1, 1)
        slope = torch.where(delta.detach() < 0, 1 - tau[:, None], tau[:, None])
        if weight is not None:
            slope = weight[:, None, None] * slope
        # With delta clipped to c, huber(delta) = c (delta - c / 2), and c is its derivative.
        total = total + (slope * clipped * (delta - 0.5 * clipped)).mean()
    return total / len(quantiles)


def project_to_bins(probabilities: torch.Tensor, returns: torch.Tensor, bounds: tuple[float, float]) -> torch.Tensor:
    """Projects a distribution onto evenly spaced bins: each point's mass goes to its two neighbours, linearly.

    This preserves the total mass and, if all points are within the bounds, the mean; points beyond go to the end bins.
    (arXiv 1707.06887, (7))

    Args:
        probabilities, returns: (B, K), mass and position of the points.
        bounds: centres of the first and the last bin.
    """
    (low, high), last = bounds, probabilities.shape[-1] - 1
    place = (returns.clamp(low, high) - low) * (last / (high - low))  # in units of bins
    below = place.floor().clamp(max=last - 1)
    above_share = (place - below) * probabilities
    index = below.long()
    projected = torch.zeros_like(probabilities)
    projected.scatter_add_(1, index, probabilities - above_share)
    return projected.scatter_add_(1, index + 1, above_share)


def cross_entropy(logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    """sum_i mean_B -sum_k target_k log softmax(logits_i)_k; logits (N, B, K), target (B, K), constants."""
    if weight is not None:
        target = weight.unsqueeze(-1) * target
    return -(torch.log_softmax(logits, -1) * target).sum() / len(target)
