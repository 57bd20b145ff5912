"""Soft actor-critic with CrossQ's critics (arXiv 1902.05605). They see both ends of a transition in one batch.

Batch normalisation needs one distribution of inputs, but the pairs (o, a) come from the buffer and (o', a') from the
policy. Joined in one batch of 2B, both are normalised by the same statistics, and the values at (o', a') serve as
targets without a slow copy of the critics. With target critics, the update is FlashSAC's (arXiv 2604.04539) or XQC's
(arXiv 2509.25174); the YAML chooses.
"""

from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from agent.api import Batch, Noise, SoftActor, StepResult, evaluation_view, frozen_view
from settings.types import PositiveInt, Schedule, UnitInterval


class CrossQAgent(SoftActor):
    """Critics on joined batches, a squashed Gaussian actor and a temperature; with or without target critics.

    The critics' loss uses the critics in training mode, and the actor's loss the actor. The actions at o', and the
    values that the actor maximises, come from networks in evaluation mode, with their running statistics. With
    `actor_statistics="all_updates"`, updates that do not step the actor have an extra forward pass for its statistics.
    config/agent/crossq.yaml explains the keys.
    """

    def __init__(
        self,
        actor_batch: Literal["obs", "both"] = "obs",
        critic_tau: UnitInterval | Schedule | None = None,
        critic_target_update_frequency: PositiveInt = 1,
        actor_statistics: Literal["own_updates", "all_updates"] = "own_updates",
        **soft_actor: Any,
    ):
        super().__init__(
            critic_tau=0.0 if critic_tau is None else critic_tau,
            critic_target_update_frequency=critic_target_update_frequency,
            **soft_actor,
        )
        self.actors_ends = 2 if actor_batch == "both" else 1
        self.actor_statistics = actor_statistics
        self.evaluated_actor = evaluation_view(self.actor)
        self.frozen_critic = frozen_view(self.critic).eval()  # the actor does not move its running statistics either
        self.critic_target = None if critic_tau is None else self.slow_copy(self.critic)

    def update_step(self, batch: Batch, noise: Noise) -> StepResult:
        """Steps critics, actor and temperature in the order of `update_order`, then moves the targets, if any."""
        joint_obs = torch.cat([batch.obs, batch.next_obs])  # (2B, obs_dim)
        actors_obs = joint_obs if self.actors_ends == 2 else batch.obs
        next_noise = noise.normal(len(batch.obs), self.actor.noise_dim)  # first: the actor's is only drawn when due
        metrics, outputs = self.update_in_order(
            partial(self.update_critic, batch, joint_obs, next_noise),
            partial(self.update_actor_and_temperature, actors_obs, noise, ends=self.actors_ends),
        )
        if self.actor_statistics == "all_updates" and not self.actor_is_due():
            with torch.no_grad():  # moves the actor's running statistics without a step of the actor
                self.actor(self.observations.first_view(actors_obs, self.actors_ends))
            self.track_batch_statistics()
        if self.critic_target is not None:
            self.update_targets()
        return metrics, outputs

    def update_critic(self, batch: Batch, joint_obs: Tensor, next_noise: Tensor, alpha: Tensor) -> StepResult:
        with torch.no_grad():
            next_action, next_log_prob = self.evaluated_actor(batch.next_obs).rsample_with_log_prob(next_noise)
            joint_action = torch.cat([batch.action, next_action])
        outputs, next_outputs = self.critic.outputs(joint_obs, joint_action).chunk(2, dim=1)  # (N, B, out_dim) each
        with torch.no_grad():
            if self.critic_target is not None:
                next_outputs = self.critic_target.outputs(joint_obs, joint_action).chunk(2, dim=1)[1]
            cost = alpha * next_log_prob
            target = self.critic.head.target(batch.reward, batch.discount, self.schedules.discount, next_outputs, cost)
        return self.step_critic(batch, outputs, target)
