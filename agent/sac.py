"""Soft actor-critic with a temperature (arXiv 1812.05905)."""

import copy
from functools import partial
from typing import Any

import torch

from agent.api import (
    Batch,
    HistogramInputs,
    Metrics,
    Noise,
    PositiveInt,
    Schedule,
    SoftActorAgent,
    SoftUpdate,
    UnitInterval,
    UpdateOrder,
    frozen_view,
    refuse_batch_norm,
)
from agent.critic import RandomSubset
from agent.soft_actor import PartOfUpdate


class SACAgent(SoftActorAgent):
    """An ensemble of critics with slow targets, a squashed Gaussian actor and a temperature.

    Args:
        critic_tau: step size of the target critics towards the critics, per target update.
        critic_target_update_frequency: updates between two target updates.
        num_target_critics: target critics per target, drawn anew for every update; None is all.
        update_order: see SoftActorAgent.update_in_order.
        soft_actor: arguments of agent.soft_actor.SoftActorAgent.

    Raises:
        UserError: for a mixture policy, whose samples have no gradient; for more target critics than critics; for batch
            normalisation, which needs both ends of a transition in one batch (agent.crossq).
    """

    supports_prioritised_replay = True

    def __init__(
        self,
        critic_tau: UnitInterval | Schedule = 0.005,
        critic_target_update_frequency: PositiveInt = 2,
        num_target_critics: PositiveInt | None = None,
        update_order: UpdateOrder = "critic_first",
        **soft_actor: Any,
    ):
        super().__init__(**soft_actor)
        self.require_reparameterised("agent.actor: agent=sac")
        refuse_batch_norm(actor=self.actor, critic=self.critic)
        self.update_order: UpdateOrder = update_order
        self.schedules.add(critic_tau=critic_tau)
        self.critic_target_update_frequency = critic_target_update_frequency
        self.critic_target = copy.deepcopy(self.critic).requires_grad_(False)
        self.frozen_critic = frozen_view(self.critic)
        self.soft_update = SoftUpdate(self.critic, self.critic_target)
        self.target_outputs = self.critic_target.outputs
        if num_target_critics is not None:
            self.target_outputs = RandomSubset(self.critic_target, num_target_critics)

    def update_step(self, batch: Batch, noise: Noise) -> tuple[Metrics, HistogramInputs]:
        """Steps critics, actor and temperature in the order of `update_order`, then moves the targets."""
        next_noise = noise.normal(len(batch.obs), self.actor.noise_dim)  # first: the actor's may be left out
        return self.update_networks(
            partial(self._update_critic, batch, next_noise), partial(self._update_actor, batch, noise)
        )

    def update_networks(
        self, update_critic: PartOfUpdate, update_actor: PartOfUpdate
    ) -> tuple[Metrics, HistogramInputs]:
        """`update_in_order`, then the targets' step if it is due."""
        metrics, outputs = self.update_in_order(self.update_order, update_critic, update_actor)
        if self.due(self.critic_target_update_frequency):
            self.soft_update(self.schedules.critic_tau)
        return metrics, outputs

    def _update_actor(self, batch: Batch, noise: Noise, alpha: torch.Tensor) -> tuple[Metrics, HistogramInputs]:
        return self.update_actor_and_temperature(self.observations.first_view(batch.obs), noise, alpha)

    def _update_critic(
        self, batch: Batch, next_noise: torch.Tensor, alpha: torch.Tensor
    ) -> tuple[Metrics, HistogramInputs]:
        with torch.no_grad():
            next_action, next_log_prob = self.actor(batch.next_obs).rsample_with_log_prob(next_noise)
            next_q = self.target_outputs(batch.next_obs, next_action)
            cost = alpha * next_log_prob
            target = self.critic.head.target(batch.reward, batch.discount, self.schedules.discount, next_q, cost)
        return self.step_critic(batch, self.critic.outputs(batch.obs, batch.action), target)
