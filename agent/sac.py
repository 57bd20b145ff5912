"""Soft actor-critic with a temperature (arXiv 1812.05905)."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from agent.api import Batch, Noise, PositiveInt, SoftActor, StepResult


class SACAgent(SoftActor):
    """Critics with slow targets, a squashed Gaussian actor and a temperature; config/agent/sac.yaml has the keys."""

    def __init__(
        self,
        num_target_critics: PositiveInt | None = None,
        **soft_actor: Any,
    ):
        super().__init__(**soft_actor)
        self.add_slow_critics(num_target_critics)

    def update_step(self, batch: Batch, noise: Noise) -> StepResult:
        """Steps critics, actor and temperature in the order of `update_order`, then moves the targets."""
        next_noise = noise.normal(len(batch.obs), self.actor.noise_dim)  # first: the actor's is only drawn when due
        metrics, outputs = self.update_in_order(
            partial(self.update_critic, batch, next_noise),
            partial(self.update_actor_and_temperature, batch.obs, noise),
        )
        self.update_targets()
        return metrics, outputs

    def update_critic(self, batch: Batch, next_noise: Tensor, alpha: Tensor) -> StepResult:
        """Steps the critics towards r + gamma (min Q' - alpha log pi), which `head` computes (agent/networks/heads)."""
        with torch.no_grad():
            next_action, next_log_prob = self.actor(batch.next_obs).rsample_with_log_prob(next_noise)
            next_q = self.target_outputs(batch.next_obs, next_action)
            cost = alpha * next_log_prob
            target = self.critic.head.target(batch.reward, batch.discount, self.schedules.discount, next_q, cost)
        return self.step_critic(batch, self.critic.outputs(batch.obs, batch.action), target)
