"""TD3 (arXiv 1802.09477): a deterministic actor, the smaller of two critics, smoothed targets, delayed updates."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from agent.api import Batch, LearningRate, Noise, OffPolicyAgent, StepResult, UpdateAt, frozen_view
from agent.networks.mlp import Init, Shape, build_network
from settings.types import Betas, Factory, NonNegativeFloat, NonNegativeInt, PositiveInt, Schedule, UnitInterval


class NoisyAction(NamedTuple):
    """An action (B, |A|), and the standard deviation of the noise that is added to it in training."""

    action: Tensor
    std: float

    def greedy(self, rate: Any) -> Tensor:
        return self.action

    def sample(self, noise: Tensor) -> Tensor:
        return self.action + self.std * noise  # acting clamps it to the action range


class DeterministicActor(nn.Module):
    """Maps an observation to an action, squashed by tanh."""

    acts_alone = True  # the greedy action needs no critic

    def __init__(
        self,
        obs_dim: PositiveInt,
        action_dim: PositiveInt,
        hidden_dim: PositiveInt,
        hidden_depth: NonNegativeInt,
        exploration_std: NonNegativeFloat = 0.1,
        init: Init = "torch",
        network: Factory | None = None,
    ):
        super().__init__()
        self.noise_dim, self.exploration_std = action_dim, exploration_std
        self.trunk = build_network(network, Shape(obs_dim, hidden_dim, action_dim, hidden_depth, None, init))

    def forward(self, obs: Tensor) -> NoisyAction:
        return NoisyAction(torch.tanh(self.trunk(obs)), self.exploration_std)


class TD3Agent(OffPolicyAgent):
    """A deterministic actor, an ensemble of critics, and slow targets of both; config/agent/td3.yaml has the keys."""

    def __init__(
        self,
        critic: Factory,
        actor: Factory,
        actor_lr: LearningRate = 3e-4,
        actor_betas: Betas = (0.9, 0.999),
        actor_update_frequency: PositiveInt = 2,
        actor_update_at: UpdateAt = "last",
        critic_lr: LearningRate = 3e-4,
        critic_betas: Betas = (0.9, 0.999),
        critic_tau: UnitInterval | Schedule = 0.005,
        target_noise_std: NonNegativeFloat = 0.2,
        target_noise_clip: NonNegativeFloat = 0.5,
        **off_policy: Any,
    ):
        super().__init__(**off_policy)
        self.schedules.add(critic_tau=critic_tau)
        self.actor_update_frequency = actor_update_frequency
        self.actor_update_at: UpdateAt = actor_update_at
        self.target_noise_std, self.target_noise_clip = target_noise_std, target_noise_clip
        self.actor, self.critic = self.build(actor), self.build(critic, learns_encoder=True)
        self.refuse_batch_norm()
        self.actor_target, self.critic_target = self.slow_copy(self.actor), self.slow_copy(self.critic)
        self.frozen_critic = frozen_view(self.critic)
        self.add_optimizer("actor", self.actor, actor_lr, actor_betas, self.actor_weight_decay)
        self.add_optimizer("critic", self.critic, critic_lr, critic_betas, self.critic_weight_decay)

    def update_step(self, batch: Batch, noise: Noise) -> StepResult:
        """Steps the critics; every `actor_update_frequency` updates also the actor and all targets.  Algorithm 1"""
        clip = self.target_noise_clip
        with torch.no_grad():
            smoothing = (self.target_noise_std * noise.normal(*batch.action.shape)).clamp(-clip, clip)
            next_action = (self.actor_target(batch.next_obs).action + smoothing).clamp(*self.action_range)
            next_outputs = self.critic_target.outputs(batch.next_obs, next_action)
            target = self.critic.head.target(batch.reward, batch.discount, self.schedules.discount, next_outputs)
        metrics, outputs = self.step_critic(batch, self.critic.outputs(batch.obs, batch.action), target)
        if self.due(self.actor_update_frequency, self.actor_update_at):
            obs = self.observations.first_view(batch.obs)
            actor_loss = -self.frozen_critic(obs, self.actor(obs).action)[0].mean()
            self.step_optimizers(actor=actor_loss)
            metrics["train_actor/loss"] = actor_loss.detach()
            self.move_slow_copies(self.schedules.critic_tau)
        return metrics, outputs
