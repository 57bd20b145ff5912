"""The step of an actor that climbs critics through its samples, and of the temperature: SAC's and CrossQ's alike."""

from typing import Any

import torch

from agent import losses
from agent.off_policy import Metrics, Seen


def update_actor_and_temperature(
    agent: Any, obs: torch.Tensor, noise: torch.Tensor, alpha: torch.Tensor
) -> tuple[Metrics, Seen]:
    """One step of both, from the values before either's.  arXiv 1812.05905 (7), (18)

    Args:
        agent: an OffPolicyAgent that has `constant_critic`, `climbed` (of its values), `temperature`,
            `learnable_temperature`, and the number `target_entropy`.
        obs: (B, obs_dim).
        noise: standard normal, (B, actor.noise_dim).
        alpha: the temperature before its step, scalar.

    Returns:
        As OffPolicyAgent.update_step.
    """
    dist = agent.actor(obs)
    action, log_prob = dist.rsample_with_log_prob(noise)
    loss = losses.actor_loss(log_prob, agent.climbed(agent.constant_critic(obs, action)), alpha)
    to_step = {"actor": loss}
    entropy, target_entropy = -log_prob.detach().mean(), agent.numbers.target_entropy
    metrics: Metrics = {
        "train_actor/loss": loss.detach(),
        "train_actor/target_entropy": target_entropy,
        "train_actor/entropy": entropy,
        "train_alpha/value": alpha,
    }
    if agent.learnable_temperature and "alpha" in agent.optimizers:
        to_step["alpha"] = losses.temperature_loss(agent.temperature.multiplier(), entropy, target_entropy)
        metrics["train_alpha/loss"] = to_step["alpha"].detach()
    agent.descend(**to_step)
    return metrics, {"mu": dist.mu.detach(), "log_std": dist.log_std.detach()}
