"""An agent like those in forks of pytorch_sac, ported as docs/SYSTEMS.md says; it saves nothing."""

from typing import Any

import numpy as np
import torch

import utils
from agent import Agent
from agent.actor import DiagGaussianActor


class ForkAgent(Agent):
    """Imitates drawn actions, weighted by the softmax of their rewards."""

    def __init__(
        self, obs_dim: int, action_dim: int, action_range: tuple[float, float], device: torch.device, lr: float = 1e-3
    ):
        self.action_range, self.device = action_range, device
        self.actor = DiagGaussianActor(obs_dim, action_dim, hidden_dim=16, hidden_depth=1, log_std_bounds=(-5, 2))
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=lr)

    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        dist = self.actor(torch.as_tensor(obs, device=self.device))
        action = dist.sample(torch.randn_like(dist.mu)) if sample else dist.mean
        assert action.ndim == 2  # one row per environment
        return utils.to_np(action.clamp(*self.action_range))

    def update(self, replay_buffer: Any, logger: Any, step: int) -> None:
        obs, action, reward, _, _ = replay_buffer.sample(16)
        logger.log("train/batch_reward", reward.mean(), step)
        loss = -(torch.softmax(reward, 0) * self.actor(obs).log_prob(action)).sum()
        logger.log("train_actor/loss", loss, step)
        self.actor_optimizer.zero_grad()
        loss.backward()
        self.actor_optimizer.step()
        logger.log_histogram("train_actor/mu_hist", self.actor(obs).mu, step)
