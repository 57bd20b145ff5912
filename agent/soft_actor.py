"""The base class of soft actor-critics: critics, slow targets, a temperature, an actor that maximises Q and entropy."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

import torch
from torch import Tensor

from agent import losses
from agent.critic import RandomSubset
from agent.off_policy import LearningRate, Metrics, OffPolicyAgent, StepResult, UpdateAt
from agent.toolkit.copies import frozen_view
from agent.toolkit.hooks import Noise
from settings.types import Betas, Factory, NonNegativeFloat, PositiveInt, Schedule, UnitInterval

UpdateOrder = Literal["critic_first", "actor_first", "together"]
PartOfUpdate = Callable[[Tensor], StepResult]  # called with the temperature
Q_REDUCTIONS = {"min": losses.minimum, "mean": losses.mean, "first": losses.first}


class SoftActor(OffPolicyAgent):
    """The networks, optimizers and actor update of a soft actor-critic; a subclass computes the critics' targets.

    config/agent/sac.yaml explains the keys; the defaults are its values.
    """

    frozen_critic: Any  # the view of the critic that the actor maximises (add_slow_critics, or a subclass)

    def __init__(
        self,
        critic: Factory,
        actor: Factory,
        temperature: Factory,
        init_temperature: NonNegativeFloat | Schedule = 0.1,
        learnable_temperature: bool = True,
        target_entropy: float | Literal["auto"] | Schedule = "auto",
        target_entropy_per_dim: float = -1.0,
        alpha_lr: LearningRate = 1e-4,
        alpha_betas: Betas = (0.9, 0.999),
        actor_lr: LearningRate = 1e-4,
        actor_betas: Betas = (0.9, 0.999),
        actor_update_frequency: PositiveInt = 1,
        actor_update_at: UpdateAt = "first",
        actor_q: Literal["min", "mean", "first"] = "min",
        critic_lr: LearningRate = 1e-4,
        critic_betas: Betas = (0.9, 0.999),
        critic_tau: UnitInterval | Schedule = 0.005,
        critic_target_update_frequency: PositiveInt = 2,
        update_order: UpdateOrder = "critic_first",
        **off_policy: Any,
    ):
        super().__init__(**off_policy)
        self.update_order = update_order
        self.actor_update_frequency = actor_update_frequency
        self.actor_update_at: UpdateAt = actor_update_at
        self.q_reduction = Q_REDUCTIONS[actor_q]
        auto = self.action_dim * target_entropy_per_dim
        self.schedules.add(target_entropy=auto if target_entropy == "auto" else target_entropy, critic_tau=critic_tau)
        self.critic_target_update_frequency = critic_target_update_frequency
        self.actor = self.build(actor)
        self.critic = self.build(critic, learns_encoder=True)
        self.temperature = temperature(init_temperature=init_temperature).to(self.device)
        self.learns_temperature = learnable_temperature and any(True for _ in self.temperature.parameters())
        self.temperature.requires_grad_(self.learns_temperature)
        self.add_optimizer("actor", self.actor, actor_lr, actor_betas, self.actor_weight_decay)
        self.add_optimizer("critic", self.critic, critic_lr, critic_betas, self.critic_weight_decay)
        if self.learns_temperature:
            self.add_optimizer("alpha", self.temperature, alpha_lr, alpha_betas)

    @property
    def alpha(self) -> Tensor:
        """The current temperature: a detached scalar, copied so that a later temperature step does not change it."""
        return self.temperature().detach().clone()

    def add_slow_critics(self, num_target_critics: int | None = None) -> None:
        """Adds `critic_target`, its `target_outputs`, and `frozen_critic`, for batches of one end of a transition."""
        self.refuse_batch_norm()
        self.critic_target = self.slow_copy(self.critic)
        self.frozen_critic = frozen_view(self.critic)
        self.target_outputs = self.critic_target.outputs
        if num_target_critics is not None:
            self.target_outputs = RandomSubset(self.critic_target, num_target_critics)

    def update_targets(self) -> None:
        """Moves the slow copies, if it is due."""
        if self.due(self.critic_target_update_frequency):
            self.move_slow_copies(self.schedules.critic_tau)

    def actor_is_due(self) -> bool:
        return self.due(self.actor_update_frequency, self.actor_update_at)

    def update_in_order(self, update_critic: PartOfUpdate, update_actor: PartOfUpdate) -> StepResult:
        """Updates the critics, and actor and temperature if they are due, in the order of `update_order`.

        `critic_first`: the critics step before the actor's loss is computed; both losses use the old temperature.
        `actor_first`: actor and temperature step first, and the critics' target uses their new values.
        `together`: computes all losses from the old values, then steps all.
        """
        alpha = self.alpha
        if not self.actor_is_due():
            return update_critic(alpha)
        with self.steps_together() if self.update_order == "together" else nullcontext():
            if self.update_order == "actor_first":
                actor_metrics, actor_outputs = update_actor(alpha)
                metrics, outputs = update_critic(self.alpha)
            else:
                metrics, outputs = update_critic(alpha)
                actor_metrics, actor_outputs = update_actor(alpha)
        return metrics | actor_metrics, outputs | actor_outputs

    def update_actor_and_temperature(self, obs: Tensor, noise: Noise, alpha: Tensor, ends: int = 1) -> StepResult:
        """Steps actor and temperature once, both on losses of the old values.  arXiv 1812.05905 (7), (18)

        Args:
            obs: (ends * B, obs_dim), the observations that the actor sees; the losses use the first end's alone.
            alpha: the temperature before its step, scalar.
        """
        obs = self.observations.first_view(obs, ends)  # not before: the critics' step moves the convolutions
        dist = self.actor(obs)
        if ends > 1:
            num_rows = len(obs) // ends
            obs, dist = obs[:num_rows], dist.first(num_rows)
        action, log_prob = dist.rsample_with_log_prob(noise.normal(len(obs), self.actor.noise_dim))
        loss = losses.actor_loss(log_prob, self.q_reduction(self.frozen_critic(obs, action)), alpha)
        metrics = self.step_actor_and_temperature(loss, -log_prob.detach().mean(), alpha)
        return metrics, {"mu": dist.mu.detach(), "log_std": dist.log_std.detach()}

    def step_actor_and_temperature(self, loss: Tensor, entropy: Tensor, alpha: Tensor) -> Metrics:
        """Steps both, given the actor's loss, its detached mean entropy, and the temperature before its step."""
        metrics: Metrics = {"train_actor/loss": loss.detach(), **self.entropy_metrics(entropy, alpha)}
        step_losses = {"actor": loss}
        if self.learns_temperature:
            step_losses["alpha"] = self.temperature_loss(entropy)
            metrics["train_alpha/loss"] = step_losses["alpha"].detach()
        self.step_optimizers(**step_losses)
        return metrics

    def temperature_loss(self, entropy: Tensor) -> Tensor:
        """Returns the temperature's loss, given the policy's mean entropy, detached."""
        return losses.temperature_loss(self.temperature.multiplier(), entropy, self.schedules.target_entropy)

    def entropy_metrics(self, entropy: Tensor, alpha: Tensor) -> Metrics:
        return {
            "train_actor/target_entropy": torch.full_like(entropy, self.schedules.target_entropy),
            "train_actor/entropy": entropy,
            "train_alpha/value": alpha,
        }
