"""The base class of soft actor-critics: critics, a temperature, and an actor that maximises Q and entropy."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, Any, Literal

import torch
from torch import nn

from agent import losses
from agent.components import LearningRate
from agent.off_policy import ActorFactory, CriticFactory, Metrics, OffPolicyAgent, UpdateAt
from agent.toolkit.histograms import HistogramInputs
from agent.toolkit.noise import Noise
from settings.types import Betas, Factory, Interface, NonNegativeFloat, PositiveInt, Schedule, UnitInterval
from utils import SoftUpdate, UserError

TemperatureFactory = Annotated[Factory, Interface("a temperature", ("init_temperature",), ("forward", "parameters"))]
UpdateOrder = Literal["critic_first", "actor_first", "together"]
PartOfUpdate = Callable[[torch.Tensor], tuple[Metrics, HistogramInputs]]  # called with the temperature
Q_REDUCTIONS = {"min": losses.minimum, "mean": losses.mean, "first": losses.first}


class SoftActorAgent(OffPolicyAgent):
    """The networks, optimizers and actor update of a soft actor-critic; a subclass computes the critics' targets.

    Arguments of type Schedule may be on a schedule of the environment step (agent.schedule). The defaults match
    config/agent/sac.yaml, but for the batch size, for use as a library.

    Args:
        critic, actor: factories of networks, called with `obs_dim` and `action_dim`.
        temperature: factory of the temperature, called with `init_temperature`.
        init_temperature: alpha at the start.
        learnable_temperature: whether a learned temperature is adjusted at all.
        target_entropy: the entropy that a learned temperature keeps; `auto` is action_dim * target_entropy_per_dim.
        target_entropy_per_dim: target entropy per action dimension, used if `target_entropy` is `auto`.
        alpha_lr, alpha_betas, actor_lr, actor_betas, critic_lr, critic_betas: for the three Adam optimizers.
        actor_update_frequency: updates between two updates of the actor.
        actor_update_at: whether the actor steps in the `first` or the `last` of every `actor_update_frequency` updates.
        actor_q: what the actor maximises: the `min` or the `mean` over the critics, or the `first` of them.
        off_policy: arguments of agent.off_policy.OffPolicyAgent.
    """

    frozen_critic: Any  # the view of the critic that the actor maximises; a subclass builds it

    def __init__(
        self,
        critic: CriticFactory,
        actor: ActorFactory,
        temperature: TemperatureFactory,
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
        **off_policy: Any,
    ):
        super().__init__(**off_policy)
        self.actor_update_frequency = actor_update_frequency
        self.actor_update_at: UpdateAt = actor_update_at
        self.q_reduction = Q_REDUCTIONS[actor_q]
        auto = self.action_dim * target_entropy_per_dim
        self.schedules.add(target_entropy=auto if target_entropy == "auto" else target_entropy)
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
    def alpha(self) -> torch.Tensor:
        """The current temperature: a detached scalar, copied so that a later temperature step does not change it."""
        return self.temperature().detach().clone()

    def slow_copy(self, network: nn.Module, critic_tau: UnitInterval | Schedule, frequency: int) -> Any:
        """Returns a target network, which `update_targets` moves by `critic_tau` in one of `frequency` updates."""
        self.schedules.add(critic_tau=critic_tau)
        self.critic_target_update_frequency = frequency
        target = copy.deepcopy(network).requires_grad_(False)
        self.soft_update = SoftUpdate(network, target)
        return target

    def update_targets(self) -> None:
        """Moves the slow copy, if it is due."""
        if self.due(self.critic_target_update_frequency):
            self.soft_update(self.schedules.critic_tau)

    def actor_is_due(self) -> bool:
        """Whether the actor steps in this update."""
        return self.due(self.actor_update_frequency, self.actor_update_at)

    def require_reparameterised(self, where: str) -> None:
        """Raises UserError for a mixture policy, whose samples have no gradient."""
        if not self.actor.acts_alone:
            raise UserError(f"{where} has no gradient for a mixture; choose agent=sac_2018, or one component")

    def update_in_order(
        self, order: UpdateOrder, update_critic: PartOfUpdate, update_actor: PartOfUpdate
    ) -> tuple[Metrics, HistogramInputs]:
        """Updates the critics, and actor and temperature if they are due.

        Args:
            order: `critic_first`: the critics step before the actor's loss is computed; both losses use the old
                temperature. `actor_first`: actor and temperature step first, and the critics' target uses their new
                values. `together`: computes all losses from the old values, then steps all.
        """
        alpha = self.alpha
        update_critic, update_actor = self._checked(update_critic), self._checked(update_actor)
        if not self.actor_is_due():
            return update_critic(alpha)
        with self.steps_together() if order == "together" else nullcontext():
            if order == "actor_first":
                actor_metrics, actor_outputs = update_actor(alpha)
                metrics, outputs = update_critic(self.alpha)
            else:
                metrics, outputs = update_critic(alpha)
                actor_metrics, actor_outputs = update_actor(alpha)
        return metrics | actor_metrics, outputs | actor_outputs

    def _checked(self, part: PartOfUpdate) -> PartOfUpdate:
        def checked(alpha: torch.Tensor) -> tuple[Metrics, HistogramInputs]:
            returned = part(alpha)
            if not isinstance(returned, tuple) or len(returned) != 2:
                name = getattr(getattr(part, "func", part), "__name__", "a part of the update")
                kind = type(returned).__name__
                raise UserError(f"{type(self).__name__}: {name} returns a {kind}; return metrics, histogram_inputs")
            return returned

        return checked

    def update_actor_and_temperature(
        self, obs: torch.Tensor, noise: Noise, alpha: torch.Tensor, num_rows: int | None = None
    ) -> tuple[Metrics, HistogramInputs]:
        """Steps actor and temperature once, both on losses of the old values.  arXiv 1812.05905 (7), (18)

        Args:
            obs: (B, obs_dim), the actor's batch.
            alpha: the temperature before its step, scalar.
            num_rows: the losses use only this many first rows; None: all.
        """
        dist = self.actor(obs)
        if num_rows is not None:
            obs, dist = obs[:num_rows], dist.first(num_rows)
        action, log_prob = dist.rsample_with_log_prob(noise.normal(len(obs), self.actor.noise_dim))
        loss = losses.actor_loss(log_prob, self.q_reduction(self.frozen_critic(obs, action)), alpha)
        metrics = self.step_actor_and_temperature(loss, -log_prob.detach().mean(), alpha)
        return metrics, {"mu": dist.mu.detach(), "log_std": dist.log_std.detach()}

    def step_actor_and_temperature(self, loss: torch.Tensor, entropy: torch.Tensor, alpha: torch.Tensor) -> Metrics:
        """Steps both, given the actor's loss, its detached mean entropy, and the temperature before its step."""
        metrics: Metrics = {"train_actor/loss": loss.detach(), **self.entropy_metrics(entropy, alpha)}
        step_losses = {"actor": loss}
        if self.learns_temperature:
            step_losses["alpha"] = self.temperature_loss(entropy)
            metrics["train_alpha/loss"] = step_losses["alpha"].detach()
        self.step_optimizers(**step_losses)
        return metrics

    def temperature_loss(self, entropy: torch.Tensor) -> torch.Tensor:
        """Returns the temperature's loss, given the policy's mean entropy, detached."""
        return losses.temperature_loss(self.temperature.multiplier(), entropy, self.schedules.target_entropy)

    def entropy_metrics(self, entropy: torch.Tensor, alpha: torch.Tensor) -> Metrics:
        """Returns the metrics of the policy's entropy and its temperature."""
        return {
            "train_actor/target_entropy": torch.full_like(entropy, self.schedules.target_entropy),
            "train_actor/entropy": entropy,
            "train_alpha/value": alpha,
        }
