"""Soft actor-critic with a temperature (arXiv 1812.05905): critics, their slow targets, an actor."""

import copy
from typing import Any

import torch

from agent.critic import RandomSubset
from agent.networks.batch_norm import refuse_batch_norm
from agent.off_policy import Metrics
from agent.soft_actor import SoftActorAgent
from agent.toolkit.frozen import frozen_view
from agent.toolkit.histograms import HistogramInputs
from agent.toolkit.noise import Noise
from replay_buffer import Batch
from settings.types import PositiveInt, Schedule, UnitInterval
from utils import SoftUpdate


class SACAgent(SoftActorAgent):
    """An ensemble of critics, a squashed Gaussian actor, a learned (or fixed, or falling) temperature.

    Args:
        critic_tau: the share of the online critics that moves into their targets.
        critic_target_update_frequency: updates between two such moves.
        num_target_critics: how many target critics, drawn anew for every update, a target is made of; None is all.
        soft_actor: what every soft actor-critic has (agent.soft_actor.SoftActorAgent).

    Raises:
        UserError: for a mixture policy, whose samples carry no gradient, for more target critics than there are, or for
            batch normalisation, which has to see both halves of what it normalises at once (see agent.crossq).
    """

    supports_prioritised_replay = True

    def __init__(
        self,
        critic_tau: UnitInterval | Schedule = 0.005,
        critic_target_update_frequency: PositiveInt = 2,
        num_target_critics: PositiveInt | None = None,
        **soft_actor: Any,
    ):
        super().__init__(**soft_actor)
        self.require_reparameterised("agent.actor: agent=sac")
        refuse_batch_norm(actor=self.actor, critic=self.critic)
        self.schedules.add(critic_tau=critic_tau)
        self.critic_target_update_frequency = critic_target_update_frequency
        self.critic_target = copy.deepcopy(self.critic).requires_grad_(False)
        self.frozen_critic = frozen_view(self.critic)
        self.soft_update = SoftUpdate(self.critic, self.critic_target)
        self.target_outputs = self.critic_target.outputs
        if num_target_critics is not None:
            self.target_outputs = RandomSubset(self.critic_target, num_target_critics)

    def update_step(self, batch: Batch, noise: Noise) -> tuple[Metrics, HistogramInputs]:
        """Critics, then actor and temperature, then the targets; alpha is the value before its step."""
        alpha = self.alpha
        metrics, seen = self._update_critic(batch, noise, alpha)
        if self.due(self.actor_update_frequency):
            obs = self.observations.first_view(batch.obs)
            actor_metrics, actor_seen = self.update_actor_and_temperature(obs, noise, alpha)
            metrics |= actor_metrics
            seen |= actor_seen
        if self.due(self.critic_target_update_frequency):
            self.soft_update(self.schedules.critic_tau)
        return metrics, seen

    def _update_critic(self, batch: Batch, noise: Noise, alpha: torch.Tensor) -> tuple[Metrics, HistogramInputs]:
        head = self.critic.head
        with torch.no_grad():
            next_noise = noise.normal(len(batch.obs), self.actor.noise_dim)
            next_action, next_log_prob = self.actor(batch.next_obs).rsample_with_log_prob(next_noise)
            next_q = self.target_outputs(batch.next_obs, next_action)
            cost = alpha * next_log_prob
            target = head.target(batch.reward, batch.discount, self.schedules.discount, next_q, cost)
        outputs = self.critic.outputs(batch.obs, batch.action)
        loss = self.critic_loss(outputs, target, batch.weight)
        self.step_optimizers(critic=loss)
        seen: HistogramInputs = {"q": head.values(outputs.detach()), **self.priorities(batch, outputs, target)}
        return {"train_critic/loss": loss.detach()}, seen
