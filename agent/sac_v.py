"""Soft actor-critic with a value network (arXiv 1801.01290): critics bootstrap from a slow copy of V.

Two systems in one file, told apart by YAML: the original of 2018 (fixed temperature, mixture policies, likelihood-ratio
gradient) and the later one with a learned temperature and delayed policy updates.
"""

import copy
from typing import Any, Literal, Unpack

import torch

from agent import losses
from agent.off_policy import LearningRate, Metrics, OffPolicyAgent, Seen, Shared
from agent.schedule import Scheduled
from utils import (
    Betas,
    Factory,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Schedule,
    SoftUpdate,
    UnitInterval,
    UserError,
    constant_view,
)


class SACVAgent(OffPolicyAgent):
    """Critics, a value network and its slow copy, an actor of any kind, a temperature.

    All losses are taken from the values before any step. Numbers may be on a schedule of the environment step
    (agent.schedule) where the type says so.

    Args:
        obs_dim, action_dim: widths of observation and action.
        action_range: (low, high) that actions are clamped to.
        device: where networks and batches live.
        critic, actor: factories of networks, called with `obs_dim` and `action_dim`.
        value: factory of the value network, called with `obs_dim`.
        temperature: factory of the temperature, called with `init_temperature`.
        discount: gamma.
        reward_scale: rewards are multiplied by it in the target; the original's inverse temperature.
        init_temperature: alpha at the start.
        learnable_temperature: whether a learned temperature is adjusted at all.
        target_entropy: what it is adjusted towards; `auto` is action_dim times the next.
        target_entropy_per_dim: see there.
        alpha_lr, actor_lr, critic_lr, value_lr and betas: of the Adam optimizers.
        actor_update_frequency: updates between two of the actor.
        critic_tau: the share of the value network that moves into its slow copy.
        critic_target_update_frequency: updates between two such moves.
        batch_size: transitions an update.
        squared_error_weight: of the Q and V losses; the original has 1/2.
        policy_gradient: `reparameterised`, or `likelihood_ratio`, which serves any policy.
        actor_q: the critic that the actor climbs: the `min` over all, or the `first`.
        action_prior: p(a), `uniform` or a unit `normal`.
        output_regularisation: the weight on the squared outputs of the actor.
        shared: what every off-policy agent can have (see agent.off_policy.Shared).

    Raises:
        UserError: for a reparameterised mixture, whose choice of a component has no such gradient.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        action_range: tuple[float, float],
        device: torch.device,
        critic: Factory,
        actor: Factory,
        value: Factory,
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
        critic_lr: LearningRate,
        critic_betas: Betas,
        critic_tau: UnitInterval | Schedule,
        critic_target_update_frequency: PositiveInt,
        value_lr: LearningRate,
        value_betas: Betas,
        batch_size: PositiveInt,
        squared_error_weight: PositiveFloat,
        policy_gradient: Literal["reparameterised", "likelihood_ratio"],
        actor_q: Literal["min", "first"],
        action_prior: Literal["uniform", "normal"],
        output_regularisation: NonNegativeFloat,
        **shared: Unpack[Shared],
    ):
        super().__init__(
            obs_dim, action_dim, actor, critic, action_range, device, batch_size, actor_update_frequency, **shared
        )
        if policy_gradient == "reparameterised" and not self.actor.acts_alone:
            raise UserError(
                "agent.policy_gradient=reparameterised: a mixture's choice of a component has no such gradient; "
                "choose likelihood_ratio, or agent.actor.num_components=1"
            )
        self.critic_target_update_frequency = critic_target_update_frequency
        self.learnable_temperature = learnable_temperature
        self.squared_error_weight = squared_error_weight
        self.policy_gradient = policy_gradient
        self.actor_q = actor_q
        self.action_prior = action_prior
        self.output_regularisation = output_regularisation
        self.numbers = Scheduled(
            discount=discount,
            reward_scale=reward_scale,
            target_entropy=action_dim * target_entropy_per_dim if target_entropy == "auto" else target_entropy,
            critic_tau=critic_tau,
            alpha_lr=alpha_lr,
            actor_lr=actor_lr,
            critic_lr=critic_lr,
            value_lr=value_lr,
        )
        self.value = value(obs_dim=obs_dim).to(device)
        self.value_target = copy.deepcopy(self.value).requires_grad_(False)
        self.constant_critic = constant_view(self.critic)  # for the actor, which climbs it and changes nothing in it
        self.temperature = temperature(init_temperature=init_temperature).to(device)
        self.modules["value_target"] = self.value_target
        self.soft_update = SoftUpdate(self.value, self.value_target)
        self.add_optimizer("actor", self.actor, actor_betas)
        self.add_optimizer("critic", self.critic, critic_betas)
        self.add_optimizer("value", self.value, value_betas)
        self.add_optimizer("alpha", self.temperature, alpha_betas)
        self.train()

    def update_step(self, batch: Any, noise: torch.Tensor) -> tuple[Metrics, Seen]:
        """As OffPolicyAgent says; the noise is for the actions at obs."""
        dist, action, log_prob = self._sample(batch.obs, noise)
        q_of_action = self.constant_critic(batch.obs, action)
        v = self.value(batch.obs)
        q = self.critic(batch.obs, batch.action)
        alpha = self.temperature().detach().clone()
        log_prior = losses.log_normal_prior(action) if self.action_prior == "normal" else 0.0
        with torch.no_grad():
            reward = self.numbers.reward_scale * batch.reward
            next_value = self.value_target(batch.next_obs)
            target = losses.q_target(reward, batch.not_done, self.numbers.discount, next_value)
            v_target = losses.value_target(q_of_action, log_prob, alpha, log_prior)

        critic_loss = losses.squared_error(q, target, self.squared_error_weight)
        value_loss = losses.squared_error(v, v_target, self.squared_error_weight)
        to_step = {"critic": critic_loss, "value": value_loss}
        entropy = -log_prob.detach().mean()
        metrics: Metrics = {
            "train_critic/loss": critic_loss.detach(),
            "train_value/loss": value_loss.detach(),
            "train_actor/target_entropy": self.numbers.target_entropy,
            "train_actor/entropy": entropy,
            "train_alpha/value": alpha,
            **self._diagnostics(q.detach(), v.detach(), target),
        }
        if self.due(self.actor_update_frequency):
            q_climbed = q_of_action[0] if self.actor_q == "first" else losses.minimum(q_of_action)
            if self.policy_gradient == "likelihood_ratio":
                actor_loss = losses.likelihood_ratio_loss(log_prob, q_climbed, v.detach(), alpha, log_prior)
            else:  # V is a constant here: it shifts the loss that is shown, and nothing else
                actor_loss = losses.actor_loss(log_prob, q_climbed - v.detach() + log_prior, alpha)
            if self.output_regularisation:
                actor_loss = actor_loss + losses.output_regulariser(dist.mu, dist.log_std, self.output_regularisation)
            to_step["actor"] = actor_loss
            metrics["train_actor/loss"] = actor_loss.detach()
        if self.learnable_temperature and "alpha" in self.optimizers:
            multiplier = self.temperature.multiplier()
            to_step["alpha"] = losses.temperature_loss(multiplier, entropy, self.numbers.target_entropy)
            metrics["train_alpha/loss"] = to_step["alpha"].detach()

        self.descend(**to_step)
        if self.due(self.critic_target_update_frequency):
            self.soft_update(self.numbers.critic_tau)
        return metrics, {"q": q.detach(), "mu": dist.mu.detach(), "log_std": dist.log_std.detach()}

    def _sample(self, obs: torch.Tensor, noise: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """The distribution, an action (B, |A|) and its log-density (B, 1), as the policy gradient needs them."""
        dist = self.actor(obs)
        if self.policy_gradient == "reparameterised":
            return dist, *dist.rsample_with_log_prob(noise)
        u = dist.sample_u(noise)
        return dist, torch.tanh(u), dist.log_prob_u(u)

    def _diagnostics(self, q: torch.Tensor, v: torch.Tensor, target: torch.Tensor) -> Metrics:
        errors = self.squared_error_weight * (q - target).square().mean(dim=(1, 2))
        metrics: Metrics = {"train/vf-avg": v.mean(), "train/vf-std": v.std()}
        for i, member in enumerate(q, start=1):
            metrics |= {f"train/qf{i}-avg": member.mean(), f"train/qf{i}-std": member.std()}
            metrics[f"train/mean-sq-bellman-error{i}"] = errors[i - 1]
        if len(q) > 1:
            metrics["train/mean-qf-diff"] = (q[0] - q[1]).abs().mean()
        return metrics
