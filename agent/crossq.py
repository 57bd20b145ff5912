"""Soft actor-critic whose critics see both ends of a transition in one batch (CrossQ, arXiv 1902.05605).

Batch normalisation needs batches that are all of one kind. The pairs (o, a) come from the buffer, (o', a') from the
policy; joined in one batch of 2B, both are normalised by the same statistics, and the values at (o', a') can serve as
targets as they are, without a slow copy of the critics. With one, and an actor that sees both ends too, it is
FlashSAC's update (arXiv 2604.04539); YAML says which.
"""

import copy
from typing import Any, Literal

import torch

from agent.off_policy import Metrics
from agent.soft_actor import SoftActorAgent
from agent.toolkit.frozen import evaluation_view, frozen_view
from agent.toolkit.histograms import HistogramInputs
from agent.toolkit.noise import Noise
from replay_buffer import Batch
from settings.types import PositiveInt, Schedule, UnitInterval
from utils import SoftUpdate


class CrossQAgent(SoftActorAgent):
    """Critics on joined batches, a squashed Gaussian actor, a temperature; slow target critics or none.

    In an update the critics are in training mode on the joined batch, the actor on its own; where one serves the other
    (the actions at o', the values that the actor maximises), by its running statistics.

    Args:
        actor_batch: the observations that normalise the actor's batch: `obs`, or `both` ends of the transitions. Its
            loss is taken at `obs` alone.
        critic_tau: the share of the online critics that moves into their targets; None is no targets.
        critic_target_update_frequency: updates between two such moves.
        soft_actor: what every soft actor-critic has (agent.soft_actor.SoftActorAgent).

    Raises:
        UserError: for a mixture policy, whose samples carry no gradient.
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
        """Critics, then actor and temperature, then the targets; alpha is the value before its step."""
        alpha = self.alpha
        joint_obs = torch.cat([batch.obs, batch.next_obs])  # (2B, obs_dim)
        metrics, seen = self._update_critic(batch, joint_obs, noise, alpha)
        if self.due(self.actor_update_frequency):
            rows, one = len(batch.obs) // self.observations.num_views, self.observations.first_view
            obs, num_rows = (one(joint_obs, ends=2), rows) if self.actor_sees_both else (one(batch.obs), None)
            actor_metrics, actor_seen = self.update_actor_and_temperature(obs, noise, alpha, num_rows)
            metrics |= actor_metrics
            seen |= actor_seen
        if self.critic_target is not None and self.due(self.critic_target_update_frequency):
            self.soft_update(self.schedules.critic_tau)
        return metrics, seen

    def _update_critic(
        self, batch: Batch, joint_obs: torch.Tensor, noise: Noise, alpha: torch.Tensor
    ) -> tuple[Metrics, HistogramInputs]:
        head = self.critic.head
        with torch.no_grad():
            next_noise = noise.normal(len(batch.obs), self.actor.noise_dim)
            next_action, next_log_prob = self.evaluated_actor(batch.next_obs).rsample_with_log_prob(next_noise)
            joint_action = torch.cat([batch.action, next_action])
        outputs, next_outputs = self.critic.outputs(joint_obs, joint_action).chunk(2, dim=1)  # (N, B, out_dim) each
        with torch.no_grad():
            if self.critic_target is not None:
                next_outputs = self.critic_target.outputs(joint_obs, joint_action).chunk(2, dim=1)[1]
            cost = alpha * next_log_prob
            target = head.target(batch.reward, batch.discount, self.schedules.discount, next_outputs, cost)
        loss = self.critic_loss(outputs, target, batch.weight)
        self.step_optimizers(critic=loss)
        seen: HistogramInputs = {"q": head.values(outputs.detach()), **self.priorities(batch, outputs, target)}
        return {"train_critic/loss": loss.detach()}, seen
