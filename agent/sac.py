"""Soft actor-critic with a temperature (arXiv 1812.05905): critics, their slow targets, an actor."""

import copy
from typing import Any, Literal, Unpack

import torch

from agent import losses
from agent.actor_step import update_actor_and_temperature
from agent.batch_norm import refuse_batch_norm
from agent.critic import RandomSubset
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


class SACAgent(OffPolicyAgent):
    """An ensemble of critics, a squashed Gaussian actor, a learned (or fixed, or falling) temperature.

    Numbers may be on a schedule of the environment step (agent.schedule) where the type says so. The defaults are those
    of config/agent/sac.yaml, for use as a library.

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
        critic_tau: the share of the online critics that moves into their targets.
        critic_target_update_frequency: updates between two such moves.
        num_target_critics: how many target critics, drawn anew for every update, a target is made of; None is all.
        batch_size: transitions an update.
        shared: what every off-policy agent can have (see agent.off_policy.Shared).

    Raises:
        UserError: for a mixture policy, whose samples carry no gradient, for more target critics than there are, or for
            batch normalisation, which has to see both halves of what it normalises at once (see agent.crossq).
    """

    noises_per_update = 2

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        action_range: tuple[float, float],
        device: torch.device,
        critic: Factory,
        actor: Factory,
        temperature: Factory,
        discount: UnitInterval | Schedule = 0.99,
        reward_scale: float | Schedule = 1.0,
        init_temperature: NonNegativeFloat | Schedule = 0.1,
        learnable_temperature: bool = True,
        target_entropy: float | Literal["auto"] | Schedule = "auto",
        target_entropy_per_dim: float = -1.0,
        alpha_lr: LearningRate = 1e-4,
        alpha_betas: Betas = (0.9, 0.999),
        actor_lr: LearningRate = 1e-4,
        actor_betas: Betas = (0.9, 0.999),
        actor_update_frequency: PositiveInt = 1,
        actor_q: Literal["min", "mean"] = "min",
        critic_lr: LearningRate = 1e-4,
        critic_betas: Betas = (0.9, 0.999),
        critic_tau: UnitInterval | Schedule = 0.005,
        critic_target_update_frequency: PositiveInt = 2,
        num_target_critics: PositiveInt | None = None,
        batch_size: PositiveInt = 1024,
        **shared: Unpack[Shared],
    ):
        super().__init__(
            obs_dim, action_dim, actor, critic, action_range, device, batch_size, actor_update_frequency, **shared
        )
        if not self.actor.acts_alone:
            raise UserError(
                "agent.actor: agent=sac has no gradient for a mixture; choose agent=sac_2018, or one component"
            )
        refuse_batch_norm(actor=self.actor, critic=self.critic)
        self.critic_target_update_frequency = critic_target_update_frequency
        self.climbed = losses.minimum if actor_q == "min" else losses.mean
        self.learnable_temperature = learnable_temperature
        self.numbers = Scheduled(
            discount=discount,
            reward_scale=reward_scale,
            target_entropy=action_dim * target_entropy_per_dim if target_entropy == "auto" else target_entropy,
            critic_tau=critic_tau,
            alpha_lr=alpha_lr,
            actor_lr=actor_lr,
            critic_lr=critic_lr,
        )
        self.head = self.critic.head
        self.critic_target = copy.deepcopy(self.critic).requires_grad_(False)
        self.constant_critic = constant_view(self.critic)  # for the actor, which climbs it and changes nothing in it
        self.target_outputs = self.critic_target.outputs
        if num_target_critics is not None:
            subset = RandomSubset(self.critic_target, num_target_critics)
            self.target_outputs = subset
            self._drawn.append((subset, batch_size))
        for critics in (self.critic, self.critic_target, self.constant_critic):
            self.draws(critics, batch_size)
        self.temperature = temperature(init_temperature=init_temperature).to(device)
        self.modules["critic_target"] = self.critic_target
        self.soft_update = SoftUpdate(self.critic, self.critic_target)
        self.add_optimizer("actor", self.actor, actor_betas)
        self.add_optimizer("critic", self.critic, critic_betas)
        self.add_optimizer("alpha", self.temperature, alpha_betas)
        self.train()

    def update_step(self, batch: Any, noise: torch.Tensor) -> tuple[Metrics, Seen]:
        """As OffPolicyAgent says; the first half of the noise is for the actions at next_obs, the second at obs."""
        next_noise, noise = noise.chunk(2)
        alpha = self.temperature().detach().clone()  # the value before its step below
        metrics, seen = self._update_critic(batch, next_noise, alpha)
        if self.due(self.actor_update_frequency):
            actor_metrics, actor_seen = update_actor_and_temperature(self, batch.obs, noise, alpha)
            metrics |= actor_metrics
            seen |= actor_seen
        if self.due(self.critic_target_update_frequency):
            self.soft_update(self.numbers.critic_tau)
        return metrics, seen

    def _update_critic(self, batch: Any, next_noise: torch.Tensor, alpha: torch.Tensor) -> tuple[Metrics, Seen]:
        with torch.no_grad():
            next_action, next_log_prob = self.actor(batch.next_obs).rsample_with_log_prob(next_noise)
            next_q = self.target_outputs(batch.next_obs, next_action)
            reward = self.numbers.reward_scale * batch.reward
            target = self.head.target(reward, batch.not_done, self.numbers.discount, next_q, next_log_prob, alpha)
        outputs = self.critic.outputs(batch.obs, batch.action)
        loss = self.head.loss(outputs, target)
        self.descend(critic=loss)
        return {"train_critic/loss": loss.detach()}, {"q": self.head.values(outputs.detach())}
