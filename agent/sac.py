"""Soft actor-critic with a temperature (arXiv 1812.05905)."""

from functools import partial
from typing import Any

import torch

from agent.api import Batch, HistogramInputs, Metrics, Noise
from agent.slow_targets import SlowTargetsAgent


class SACAgent(SlowTargetsAgent):
    """Critics with slow targets, a squashed Gaussian actor and a temperature.

    Args:
        slow_targets: arguments of agent.slow_targets.SlowTargetsAgent.

    Raises:
        UserError: for a mixture policy, whose samples have no gradient.
    """

    def __init__(self, **slow_targets: Any):
        super().__init__(**slow_targets)
        self.require_reparameterised("agent.actor: agent=sac")

    def update_step(self, batch: Batch, noise: Noise) -> tuple[Metrics, HistogramInputs]:
        """Steps critics, actor and temperature in the order of `update_order`, then moves the targets."""
        next_noise = noise.normal(len(batch.obs), self.actor.noise_dim)  # first: the actor's is only drawn when due
        metrics, outputs = self.update_in_order(
            self.update_order,
            partial(self._update_critic, batch, next_noise),
            partial(self._update_actor, batch, noise),
        )
        self.update_targets()
        return metrics, outputs

    def _update_actor(self, batch: Batch, noise: Noise, alpha: torch.Tensor) -> tuple[Metrics, HistogramInputs]:
        obs = self.observations.first_view(batch.obs)  # not before: the critics' step moves the convolutions
        return self.update_actor_and_temperature(obs, noise, alpha)

    def _update_critic(
        self, batch: Batch, next_noise: torch.Tensor, alpha: torch.Tensor
    ) -> tuple[Metrics, HistogramInputs]:
        with torch.no_grad():
            next_action, next_log_prob = self.actor(batch.next_obs).rsample_with_log_prob(next_noise)
            next_q = self.target_outputs(batch.next_obs, next_action)
            cost = alpha * next_log_prob
            target = self.critic.head.target(batch.reward, batch.discount, self.schedules.discount, next_q, cost)
        return self.step_critic(batch, self.critic.outputs(batch.obs, batch.action), target)
