"""Soft actor-critic with a learned temperature (arXiv 1812.05905)."""

from typing import Any

import numpy as np
import torch

from agent import Agent, losses
from utils import (
    Factory,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    UnitInterval,
    soft_update_params,
)

Betas = tuple[UnitInterval, UnitInterval]
Tensors = dict[str, torch.Tensor]


class SACAgent(Agent):
    """Double-Q critic, squashed Gaussian actor, learned temperature.

    Args:
        obs_dim, action_dim: widths of observation and action.
        action_range: (low, high) that actions are clamped to.
        device: where networks and batches live.
        critic, actor: factories of networks, called with `obs_dim` and `action_dim`.
        temperature: factory of the temperature, called with `init_temperature`.
        discount: gamma.
        init_temperature: alpha at the start.
        alpha_lr, alpha_betas, actor_lr, actor_betas, critic_lr, critic_betas: of the three Adam optimizers.
        actor_update_frequency: updates between two of actor and temperature.
        critic_tau: the share of the online critics that moves into their targets.
        critic_target_update_frequency: updates between two such moves.
        batch_size: transitions an update.
        learnable_temperature: whether alpha is adjusted towards a policy entropy of -action_dim.
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
        discount: UnitInterval,
        init_temperature: PositiveFloat,
        alpha_lr: NonNegativeFloat,
        alpha_betas: Betas,
        actor_lr: NonNegativeFloat,
        actor_betas: Betas,
        actor_update_frequency: PositiveInt,
        critic_lr: NonNegativeFloat,
        critic_betas: Betas,
        critic_tau: UnitInterval,
        critic_target_update_frequency: PositiveInt,
        batch_size: PositiveInt,
        learnable_temperature: bool,
    ):
        self.action_dim = action_dim
        self.action_range = action_range
        self.device = device
        self.discount = discount
        self.actor_update_frequency = actor_update_frequency
        self.critic_tau = critic_tau
        self.critic_target_update_frequency = critic_target_update_frequency
        self.batch_size = batch_size
        self.learnable_temperature = learnable_temperature
        self.target_entropy = -float(action_dim)

        self.actor = actor(obs_dim=obs_dim, action_dim=action_dim).to(device)
        self.critic = critic(obs_dim=obs_dim, action_dim=action_dim).to(device)
        self.critic_target = critic(obs_dim=obs_dim, action_dim=action_dim).to(device).requires_grad_(False)
        self.critic_target.load_state_dict(self.critic.state_dict())
        self.temperature = temperature(init_temperature=init_temperature).to(device)

        def adam(module: torch.nn.Module, lr: float, betas: Betas) -> torch.optim.Adam:
            return torch.optim.Adam(module.parameters(), lr=lr, betas=betas, eps=1e-8, fused=True)

        self.actor_optimizer = adam(self.actor, actor_lr, actor_betas)
        self.critic_optimizer = adam(self.critic, critic_lr, critic_betas)
        self.temperature_optimizer = adam(self.temperature, alpha_lr, alpha_betas)

        # Its own generator, so that nothing else that draws (an environment, an evaluation) shifts the noise.
        self.generator = torch.Generator(device).manual_seed(torch.initial_seed())
        self.num_updates = 0
        self.train()

    def train(self, training: bool = True) -> None:
        super().train(training)
        self.actor.train(training)
        self.critic.train(training)

    @torch.inference_mode()
    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        obs_tensor = torch.as_tensor(obs, dtype=torch.float32, device=self.device)
        batch = obs_tensor if obs_tensor.dim() == 2 else obs_tensor.unsqueeze(0)
        dist = self.actor(batch)
        action = dist.rsample(self._noise(len(batch))) if sample else dist.mean
        action = action.clamp(*self.action_range).cpu().numpy()
        return action if obs_tensor.dim() == 2 else action[0]

    def _noise(self, batch_size: int) -> torch.Tensor:
        return torch.randn(batch_size, self.action_dim, device=self.device, generator=self.generator)

    def update(self, replay_buffer: Any, logger: Any, step: int) -> None:
        batch = replay_buffer.sample(self.batch_size)
        metrics, histograms = self.update_step(batch, self._noise(len(batch.obs)), self._noise(len(batch.obs)))
        for key, value in metrics.items():
            logger.log(key, value, step)
        if logger.histograms_due(step):
            self._log_histograms(histograms, logger, step)

    def update_step(self, batch: Any, next_noise: torch.Tensor, noise: torch.Tensor) -> tuple[Tensors, Tensors]:
        """One update from given tensors alone.

        Args:
            batch: obs, action, reward, next_obs, not_done (see replay_buffer.Batch).
            next_noise, noise: standard normal, (B, |A|), of the actions at next_obs and at obs.

        Returns:
            Scalars to average and tensors for histograms, both by log key, detached and on the device.
        """
        metrics, histograms = self._update_critic(batch, next_noise)
        metrics["train/batch_reward"] = batch.reward.mean()
        if self.num_updates % self.actor_update_frequency == 0:
            actor_metrics, actor_histograms = self._update_actor_and_temperature(batch.obs, noise)
            metrics |= actor_metrics
            histograms |= actor_histograms
        if self.num_updates % self.critic_target_update_frequency == 0:
            soft_update_params(self.critic, self.critic_target, self.critic_tau)
        self.num_updates += 1
        return metrics, histograms

    def _update_critic(self, batch: Any, next_noise: torch.Tensor) -> tuple[Tensors, Tensors]:
        with torch.no_grad():
            next_action, next_log_prob = self.actor(batch.next_obs).rsample_with_log_prob(next_noise)
            next_q = self.critic_target(batch.next_obs, next_action)
            target = losses.soft_q_target(
                batch.reward, batch.not_done, self.discount, next_q, next_log_prob, self.temperature()
            )
        q = self.critic(batch.obs, batch.action)
        loss = losses.critic_loss(q, target)
        self.critic_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.critic_optimizer.step()
        q = q.detach()
        return {"train_critic/loss": loss.detach()}, {
            f"train_critic/q{i}_hist": member for i, member in enumerate(q, start=1)
        }

    def _update_actor_and_temperature(self, obs: torch.Tensor, noise: torch.Tensor) -> tuple[Tensors, Tensors]:
        dist = self.actor(obs)
        action, log_prob = dist.rsample_with_log_prob(noise)
        alpha = self.temperature()
        loss = losses.actor_loss(log_prob, self.critic(obs, action), alpha.detach())
        self.actor_optimizer.zero_grad(set_to_none=True)
        loss.backward(inputs=list(self.actor.parameters()))  # the critics' own gradients are not computed
        self.actor_optimizer.step()
        metrics = {
            "train_actor/loss": loss.detach(),
            "train_actor/target_entropy": torch.tensor(self.target_entropy),
            "train_actor/entropy": -log_prob.detach().mean(),
            "train_alpha/value": alpha.detach(),
        }
        if self.learnable_temperature:
            alpha_loss = losses.temperature_loss(alpha, log_prob, self.target_entropy)
            self.temperature_optimizer.zero_grad(set_to_none=True)
            alpha_loss.backward()
            self.temperature_optimizer.step()
            metrics["train_alpha/loss"] = alpha_loss.detach()
        return metrics, {"train_actor/mu_hist": dist.mu.detach(), "train_actor/std_hist": dist.std.detach()}

    def _log_histograms(self, histograms: Tensors, logger: Any, step: int) -> None:
        for key, values in histograms.items():
            logger.log_histogram(key, values, step, log_frequency=1)
        for index, layer in enumerate(self.critic.trunk):
            if hasattr(layer, "weight"):
                for member in range(layer.weight.shape[0]):
                    key = f"train_critic/q{member + 1}_fc{index}"
                    logger.log_param(key, layer, step, log_frequency=1, member=member)
        for index, layer in enumerate(self.actor.trunk):
            if hasattr(layer, "weight"):
                logger.log_param(f"train_actor/fc{index}", layer, step, log_frequency=1)

    def _parts(self) -> dict[str, Any]:
        return {
            "actor": self.actor,
            "critic": self.critic,
            "critic_target": self.critic_target,
            "temperature": self.temperature,
            "actor_optimizer": self.actor_optimizer,
            "critic_optimizer": self.critic_optimizer,
            "temperature_optimizer": self.temperature_optimizer,
        }

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        return state | {"generator": self.generator.get_state(), "num_updates": self.num_updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.generator.set_state(state["generator"].cpu())
        self.num_updates = state["num_updates"]
