"""Soft actor-critic whose critics see both ends of a transition in one batch (CrossQ, arXiv 1902.05605).

Batch normalisation needs batches that are all of one kind. The pairs (o, a) come from the buffer, (o', a') from the
policy; joined in one batch of 2B, both are normalised by the same statistics, and the values at (o', a') can serve as
targets as they are, without a slow copy of the critics. With one, and both ends in the actor's batch, it is FlashSAC's
update (arXiv 2604.04539); YAML says which.
"""

import copy
from typing import Any, Literal, Unpack

import torch

from agent import losses
from agent.actor_step import update_actor_and_temperature
from agent.batch_norm import BatchNorm
from agent.off_policy import LearningRate, Metrics, OffPolicyAgent, Seen, Shared
from agent.schedule import Scheduled
from utils import (
    Betas,
    Factory,
    NonNegativeFloat,
    PositiveInt,
    Schedule,
    SoftUpdate,
    UnitInterval,
    UserError,
    constant_view,
)


class CrossQAgent(OffPolicyAgent):
    """Critics on joined batches, a squashed Gaussian actor, a temperature; slow target critics or none.

    In an update the critics are in training mode on the joined batch, the actor on its own; where one serves the other
    (the actions at o', the values that the actor climbs), by its running statistics.

    Args:
        obs_dim, action_dim: widths of observation and action.
        action_range: (low, high) that actions are clamped to.
        device: where networks and batches live.
        critic, actor: factories of networks, called with `obs_dim` and `action_dim`.
        temperature: factory of the temperature, called with `init_temperature`.
        discount: gamma.
        reward_scale: rewards are multiplied by it in the target.
        init_temperature: alpha at the start.
        learnable_temperature: whether a learned temperature is adjusted at all.
        target_entropy: what it is adjusted towards; `auto` is action_dim times the next.
        target_entropy_per_dim: see there.
        alpha_lr, alpha_betas, actor_lr, actor_betas, critic_lr, critic_betas: of the three Adam optimizers.
        actor_update_frequency: updates between two of actor and temperature.
        actor_q: what the actor climbs: the `min` or the `mean` over the critics.
        actor_batch: the observations that the actor learns at: `obs`, or `both` ends of the transitions.
        critic_tau: the share of the online critics that moves into their targets; None is no targets.
        critic_target_update_frequency: updates between two such moves.
        batch_size: B, transitions an update.
        shared: what every off-policy agent can have (see agent.off_policy.Shared).

    Raises:
        UserError: for a mixture policy, whose samples carry no gradient.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        action_range: tuple[float, float],
        device: torch.device,
        critic: Factory,
        actor: Factory,
        temperature: Factory,
        discount: UnitInterval | Schedule,
        reward_scale: float | Schedule,
        init_temperature: NonNegativeFloat | Schedule,
        learnable_temperature: bool,
        target_entropy: float | Literal["auto"] | Schedule,
        target_entropy_per_dim: float,
        alpha_lr: LearningRate,
        alpha_betas: Betas,
        actor_lr: LearningRate,
        actor_betas: Betas,
        actor_update_frequency: PositiveInt,
        actor_q: Literal["min", "mean"],
        actor_batch: Literal["obs", "both"],
        critic_lr: LearningRate,
        critic_betas: Betas,
        critic_tau: UnitInterval | Schedule | None,
        critic_target_update_frequency: PositiveInt,
        batch_size: PositiveInt,
        **shared: Unpack[Shared],
    ):
        super().__init__(
            obs_dim, action_dim, actor, critic, action_range, device, batch_size, actor_update_frequency, **shared
        )
        if not self.actor.acts_alone:
            raise UserError(
                "agent.actor: agent=crossq has no gradient for a mixture; choose agent=sac_2018, or one component"
            )
        self.critic_target_update_frequency = critic_target_update_frequency
        self.learnable_temperature = learnable_temperature
        self.climbed = losses.minimum if actor_q == "min" else losses.mean
        self.at_both = actor_batch == "both"
        self.noises_per_update = 3 if self.at_both else 2
        self.numbers = Scheduled(
            discount=discount,
            reward_scale=reward_scale,
            target_entropy=action_dim * target_entropy_per_dim if target_entropy == "auto" else target_entropy,
            critic_tau=0.0 if critic_tau is None else critic_tau,
            alpha_lr=alpha_lr,
            actor_lr=actor_lr,
            critic_lr=critic_lr,
        )
        self.head = self.critic.head
        self.critic_target = None if critic_tau is None else copy.deepcopy(self.critic).requires_grad_(False)
        # For the actor, which climbs it and changes nothing in it, the running statistics neither.
        self.constant_critic = constant_view(self.critic).eval()
        self.temperature = temperature(init_temperature=init_temperature).to(device)
        if self.critic_target is not None:
            self.modules["critic_target"] = self.critic_target
            self.soft_update = SoftUpdate(self.critic, self.critic_target)
            self.draws(self.critic_target, 2 * batch_size)
        self.add_optimizer("actor", self.actor, actor_betas)
        self.add_optimizer("critic", self.critic, critic_betas)
        self.add_optimizer("alpha", self.temperature, alpha_betas)
        if self.critic_target is not None:  # it sees the same batch, and its statistics follow it at the same time
            self._after_step["critic"] += [
                n.after_step for n in self.critic_target.modules() if isinstance(n, BatchNorm)
            ]
        self.draws(self.actor, (self.noises_per_update - 1) * batch_size)
        self.draws(self.critic, 2 * batch_size)
        self.train()

    def update_step(self, batch: Any, noise: torch.Tensor) -> tuple[Metrics, Seen]:
        """As OffPolicyAgent says; the first B rows of noise are for the actions at next_obs, the others the actor's."""
        next_noise, actor_noise = noise.split([len(batch.reward), len(noise) - len(batch.reward)])
        alpha = self.temperature().detach().clone()  # the value before its step below
        joint_obs = torch.cat([batch.obs, batch.next_obs])  # (2B, obs_dim)
        metrics, seen = self._update_critic(batch, joint_obs, next_noise, alpha)
        if self.due(self.actor_update_frequency):
            obs = joint_obs if self.at_both else batch.obs
            actor_metrics, actor_seen = update_actor_and_temperature(self, obs, actor_noise, alpha)
            metrics |= actor_metrics
            seen |= actor_seen
        if self.critic_target is not None and self.due(self.critic_target_update_frequency):
            self.soft_update(self.numbers.critic_tau)
        return metrics, seen

    def _update_critic(
        self, batch: Any, joint_obs: torch.Tensor, next_noise: torch.Tensor, alpha: torch.Tensor
    ) -> tuple[Metrics, Seen]:
        with torch.no_grad():
            next_action, next_log_prob = self.policy.actor(batch.next_obs).rsample_with_log_prob(next_noise)
            joint_action = torch.cat([batch.action, next_action])
        outputs, next_outputs = self.critic.outputs(joint_obs, joint_action).chunk(2, dim=1)  # (N, B, out_dim) each
        with torch.no_grad():
            if self.critic_target is not None:
                next_outputs = self.critic_target.outputs(joint_obs, joint_action).chunk(2, dim=1)[1]
            reward, discount = self.numbers.reward_scale * batch.reward, self.numbers.discount
            target = self.head.target(reward, batch.not_done, discount, next_outputs, next_log_prob, alpha)
        loss = self.head.loss(outputs, target)
        self.descend(critic=loss)
        return {"train_critic/loss": loss.detach()}, {"q": self.head.values(outputs.detach())}
