"""Soft actor-critic with CrossQ's critics (arXiv 1902.05605). They see both ends of a transition in one batch.

Batch normalisation needs one distribution of inputs, but the pairs (o, a) come from the buffer and (o', a') from the
policy. Joined in one batch of 2B, both are normalised by the same statistics, and the values at (o', a') serve as
targets without a slow copy of the critics. With target critics, and an actor that sees both ends too, the update is
FlashSAC's (arXiv 2604.04539); the YAML chooses.
"""

import copy
from typing import Any, Literal

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
    evaluation_view,
    frozen_view,
)


class CrossQAgent(SoftActorAgent):
    """Critics on joined batches, a squashed Gaussian actor and a temperature; with or without target critics.

    The critics' loss runs the critics in training mode, and the actor's loss the actor. The actions at o', and the
    values that the actor maximises, come from networks in evaluation mode, with their running statistics.

    Args:
        actor_batch: the observations that normalise the actor's batch: `obs`, or `both` ends of the transitions. The
            actor's loss is taken at `obs` alone.
        critic_tau: step size of the target critics towards the critics, per target update; None is no targets.
        critic_target_update_frequency: updates between two target updates.
        soft_actor: arguments of agent.soft_actor.SoftActorAgent.

    Raises:
        UserError: for a mixture policy, whose samples have no gradient.
    """

    supports_prioritised_replay = True

    def __init__(
        self,
        actor_batch: Literal["obs", "both"] = "obs",
        critic_tau: UnitInterval | Schedule | None = None,
        critic_target_update_frequency: PositiveInt = 1,
        **soft_actor: Any,
    ):
        super().__init__(**soft_actor)
        self.require_reparameterised("agent.actor: agent=crossq")
        self.critic_target_update_frequency = critic_target_update_frequency
        self.actor_sees_both = actor_batch == "both"
        self.evaluated_actor = evaluation_view(self.actor)
        self.frozen_critic = frozen_view(self.critic).eval()  # the actor does not move its running statistics either
        self.critic_target = None
        if critic_tau is not None:
            self.schedules.add(critic_tau=critic_tau)
            self.critic_target = copy.deepcopy(self.critic).requires_grad_(False)
            self.soft_update = SoftUpdate(self.critic, self.critic_target)

    def update_step(self, batch: Batch, noise: Noise) -> tuple[Metrics, HistogramInputs]:
        """Steps critics, then actor and temperature, then moves the targets, if there are any."""
        alpha = self.alpha  # the value before its step, in both losses
        joint_obs = torch.cat([batch.obs, batch.next_obs])  # (2B, obs_dim)
        metrics, outputs = self._update_critic(batch, joint_obs, noise, alpha)
        if self.actor_is_due():
            if self.actor_sees_both:
                obs = self.observations.first_view(joint_obs, ends=2)
                num_rows: int | None = len(obs) // 2
            else:
                obs, num_rows = self.observations.first_view(batch.obs), None
            actor_metrics, actor_outputs = self.update_actor_and_temperature(obs, noise, alpha, num_rows)
            metrics |= actor_metrics
            outputs |= actor_outputs
        if self.critic_target is not None and self.due(self.critic_target_update_frequency):
            self.soft_update(self.schedules.critic_tau)
        return metrics, outputs

    def _update_critic(
        self, batch: Batch, joint_obs: torch.Tensor, noise: Noise, alpha: torch.Tensor
    ) -> tuple[Metrics, HistogramInputs]:
        with torch.no_grad():
            next_noise = noise.normal(len(batch.obs), self.actor.noise_dim)
            next_action, next_log_prob = self.evaluated_actor(batch.next_obs).rsample_with_log_prob(next_noise)
            joint_action = torch.cat([batch.action, next_action])
        outputs, next_outputs = self.critic.outputs(joint_obs, joint_action).chunk(2, dim=1)  # (N, B, out_dim) each
        with torch.no_grad():
            if self.critic_target is not None:
                next_outputs = self.critic_target.outputs(joint_obs, joint_action).chunk(2, dim=1)[1]
            cost = alpha * next_log_prob
            target = self.critic.head.target(batch.reward, batch.discount, self.schedules.discount, next_outputs, cost)
        return self.step_critic(batch, outputs, target)
