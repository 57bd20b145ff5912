"""Soft actor-critic for discrete actions (arXiv 1910.07207)."""

import math
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from agent import losses
from agent.api import Batch, Noise, PositiveInt, Schedule, SoftActor, StepResult, UnitInterval, UserError


class SACDiscreteAgent(SoftActor):
    """Critics that return a value for each action, and an actor that returns a probability for each.

    Expectations over actions are sums, so that an update needs no noise, and the temperature follows the exact entropy.
    `action_dim` is the number of actions; config/agent/sac_discrete.yaml has the keys.
    """

    discrete_actions = True

    def __init__(
        self,
        action_dim: PositiveInt,
        target_entropy: float | Literal["auto"] | Schedule = "auto",
        target_entropy_share: UnitInterval = 0.5,
        num_target_critics: PositiveInt | None = None,
        **soft_actor: Any,
    ):
        entropy = target_entropy_share * math.log(action_dim) if target_entropy == "auto" else target_entropy
        super().__init__(action_dim=action_dim, target_entropy=entropy, **soft_actor)
        self.add_slow_critics(num_target_critics)
        head = self.critic.head
        if not getattr(head, "averages_targets", False):
            raise UserError(
                f"agent.critic.head={type(head).__name__}: agent=sac_discrete takes a mean of targets over actions, "
                "which quantiles have none of; choose agent.networks.CategoricalHead, or null"
            )
        if self.exploration is not None:
            raise UserError("agent.exploration: held noise is for continuous actions; choose none")

    def update_step(self, batch: Batch, noise: Noise) -> StepResult:
        """Steps critics, actor and temperature in the order of `update_order`, then moves the targets."""
        metrics, outputs = self.update_in_order(partial(self.update_critic, batch), partial(self.update_actor, batch))
        self.update_targets()
        return metrics, outputs

    def update_critic(self, batch: Batch, alpha: Tensor) -> StepResult:
        head, rows, num_actions = self.critic.head, len(batch.reward), self.action_dim
        with torch.no_grad():
            log_probs = self.actor(batch.next_obs).log_probs
            # A target for each next action, as if each were a row; then their mean under the policy.
            next_outputs = self.target_outputs(batch.next_obs).unflatten(-1, (num_actions, -1)).flatten(1, 2)
            reward, discount = (x.expand(-1, num_actions).reshape(-1, 1) for x in (batch.reward, batch.discount))
            cost = (alpha * log_probs).view(-1, 1)
            targets = head.target(reward, discount, self.schedules.discount, next_outputs, cost)
            target = (log_probs.exp().unsqueeze(-1) * targets.unflatten(0, (rows, num_actions))).sum(1)
        outputs = self.critic.outputs(batch.obs).unflatten(-1, (num_actions, -1))  # (N, B, |A|, head.out_dim)
        index = batch.action.long().unsqueeze(-1).expand(len(outputs), -1, -1, outputs.shape[-1])
        return self.step_critic(batch, outputs.gather(2, index).squeeze(2), target)

    def update_actor(self, batch: Batch, alpha: Tensor) -> StepResult:
        obs = self.observations.first_view(batch.obs)
        log_probs = self.actor(obs).log_probs
        with torch.no_grad():
            q = self.q_reduction(self.frozen_critic(obs))
            entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        loss = -losses.expected_value(log_probs, q, alpha).mean()
        return self.step_actor_and_temperature(loss, entropy, alpha), {"log_probs": log_probs.detach()}
