"""Soft actor-critic with a value network (arXiv 1801.01290): critics bootstrap from a slow copy of V.

The YAML chooses between the original of 2018 (fixed temperature, mixture policies, likelihood-ratio gradient) and the
later form with a learned temperature and delayed policy updates.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from agent import losses
from agent.api import Batch, LearningRate, Metrics, Noise, SoftActor, StepResult, frozen_view
from settings.types import Betas, Factory, NonNegativeFloat, PositiveFloat


class SACVAgent(SoftActor):
    """Critics, a value network with a slow copy, any actor, and a temperature; config/agent/sac_v.yaml has the keys."""

    supports_prioritised_replay = False

    def __init__(
        self,
        value: Factory,
        value_lr: LearningRate,
        value_betas: Betas,
        squared_error_weight: PositiveFloat,
        policy_gradient: Literal["reparameterised", "likelihood_ratio"],
        action_prior: Literal["uniform", "normal"],
        output_regularisation: NonNegativeFloat,
        **soft_actor: Any,
    ):
        super().__init__(update_order="together", **soft_actor)
        self.refuse_batch_norm()
        self.squared_error_weight, self.output_regularisation = squared_error_weight, output_regularisation
        self.policy_gradient, self.action_prior = policy_gradient, action_prior
        self.value = self.build(value, takes_action=False)
        self.value_target = self.slow_copy(self.value)
        self.frozen_critic = frozen_view(self.critic)
        self.add_optimizer("value", self.value, value_lr, value_betas, self.critic_weight_decay)

    def update_step(self, batch: Batch, noise: Noise) -> StepResult:
        """Computes all losses, then steps all optimizers, then moves the slow copy of V."""
        obs, num_views = self.observations.features(batch.obs), self.observations.num_views
        # Values before any step.
        dist, action, log_prob = self._sample(obs, noise)
        q_of_action = self.frozen_critic(obs, action)
        v = self.value(obs)
        q = self.critic(batch.obs, batch.action)
        alpha = self.alpha
        log_prior = losses.log_normal_prior(action) if self.action_prior == "normal" else 0.0
        with torch.no_grad():
            next_value = self.value_target(batch.next_obs)
            target = losses.q_target(batch.reward, batch.discount, next_value, self.schedules.discount)
            target = self.observations.mean_of_views(target)
            v_target = losses.value_target(self.critic.head.reduction(q_of_action), log_prob, alpha, log_prior)

        # Losses.
        critic_loss = losses.squared_error(q, target, num_views * self.squared_error_weight)
        value_loss = losses.squared_error(v, v_target, self.squared_error_weight)
        step_losses = {"critic": critic_loss, "value": value_loss}
        entropy = -log_prob.detach().mean()
        metrics: Metrics = {
            "train_critic/loss": critic_loss.detach(),
            "train_value/loss": value_loss.detach(),
            **self.entropy_metrics(entropy, alpha),
            **self._diagnostics(q.detach(), v.detach(), target),
        }
        if self.actor_is_due():
            reduced_q, baseline = self.q_reduction(q_of_action), v.detach()
            if self.policy_gradient == "likelihood_ratio":
                actor_loss = losses.likelihood_ratio_loss(log_prob, reduced_q, baseline, alpha, log_prior)
            else:  # V is a constant: it shifts the logged loss and has no gradient
                actor_loss = losses.actor_loss(log_prob, reduced_q - baseline + log_prior, alpha)
            if self.output_regularisation:
                regulariser = losses.output_regulariser(dist.mu, dist.log_std, self.output_regularisation)
                actor_loss = actor_loss + regulariser
            step_losses["actor"] = actor_loss
            metrics["train_actor/loss"] = actor_loss.detach()
        if self.learns_temperature:
            step_losses["alpha"] = self.temperature_loss(entropy)
            metrics["train_alpha/loss"] = step_losses["alpha"].detach()

        self.step_optimizers(**step_losses)
        self.update_targets()
        return metrics, {"q": q.detach(), "mu": dist.mu.detach(), "log_std": dist.log_std.detach()}

    def _sample(self, obs: Tensor, noise: Noise) -> tuple[Any, Tensor, Tensor]:
        """Returns a distribution, an action (B, |A|) and its log-density (B, 1), with the policy gradient's graph."""
        dist, numbers = self.actor(obs), noise.normal(len(obs), self.actor.noise_dim)
        if self.policy_gradient == "reparameterised":
            return dist, *dist.rsample_with_log_prob(numbers)
        u = dist.sample_u(numbers)
        return dist, torch.tanh(u), dist.log_prob_u(u)

    def _diagnostics(self, q: Tensor, v: Tensor, target: Tensor) -> Metrics:
        errors = self.squared_error_weight * (q - target).square().mean(dim=(1, 2))
        metrics: Metrics = {"train/vf-avg": v.mean(), "train/vf-std": v.std(correction=0)}
        for i, member in enumerate(q, start=1):
            metrics |= {f"train/qf{i}-avg": member.mean(), f"train/qf{i}-std": member.std(correction=0)}
            metrics[f"train/mean-sq-bellman-error{i}"] = errors[i - 1]
        if len(q) > 1:
            metrics["train/mean-qf-diff"] = (q[0] - q[1]).abs().mean()
        return metrics
