"""FlashSAC against its description (arXiv 2604.04539) and its authors' code, in plain operations and float64."""

import math
from typing import Any

import composed
import formulas
import numpy as np
import pytest
import torch
from agents import ACTION_DIM, OBS_DIM, make_agent
from formulas import Network, SoftActorCritic, batches, categorical_losses, policy, soft_limited, unit_lengths, update

from replay_buffer import Batch

pytestmark = pytest.mark.usefixtures("float64")
ROWS, UPDATES, STEPS, GAMMA, TAU = 16, 50, 100, 0.99, 0.01
SMALL = (
    *("agent=flash_sac", f"num_train_steps={STEPS}", f"agent.batch_size={ROWS}"),
    *("agent.critic.hidden_dim=12", "agent.actor.hidden_dim=8"),
)
EPISODE = [(1.0, False), (-2.0, False), (0.5, False), (4.0, True)]  # each reward, and whether the episode ends with it


def residual(net: Network, x: torch.Tensor, training: bool) -> torch.Tensor:
    """Batch norm, linear without bias, two blocks, RMS norm, linear."""
    x = net.linear("1", net.batch_norm("0", x, training))
    for block in ("2", "3"):
        h = torch.relu(net.batch_norm(f"{block}.up_norm", net.linear(f"{block}.up", x), training))
        x = x + torch.relu(net.batch_norm(f"{block}.down_norm", net.linear(f"{block}.down", h), training))
    x = x / torch.sqrt((x**2).sum(1, keepdim=True) / x.shape[1] + 1e-6) * net.weights["4.scale"][0]
    return net.linear("5", x)


class FlashSAC(SoftActorCritic):
    def __init__(self, agent: Any):
        super().__init__(agent, residual, eps=1e-5, unbiased=True)
        self.centres = torch.linspace(-5, 5, 101)

    def step(self, name: str, loss: torch.Tensor) -> None:
        """Uses the rate after this optimizer's own steps; the actor and the temperature make half as many."""
        done = self.adams[name].count / STEPS
        self.adams[name].step(loss, 1.5e-4 + 1.5e-4 * (1 + math.cos(math.pi * done)) / 2)

    def values(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.softmax(logits, 1) @ self.centres

    def update_actor(self, obs: torch.Tensor, next_obs: torch.Tensor, eps: torch.Tensor) -> None:
        """Normalises obs and next_obs as one batch. The loss is at obs; the critics, in evaluation mode, step later."""
        action, log_prob = policy(self.actor, torch.cat([obs, next_obs]), eps, soft_limited, training=True)
        values = [self.values(q(torch.cat([obs, action], 1))) for q in self.critic.members()]
        self.step("actor", (self.alpha() * log_prob - torch.minimum(*values)).mean())
        unit_lengths(self.actor.weights, norms=True)
        self.actor.follow()
        target_entropy = ACTION_DIM / 2 * math.log(2 * math.pi * math.e * 0.15**2)
        self.step("alpha", (self.temperature["log"].exp() * (-log_prob.detach() - target_entropy)).mean())

    def update_critic(self, batch: Batch, reward: torch.Tensor, eps: torch.Tensor) -> None:
        losses, members = categorical_losses(self, batch, reward, eps, soft_limited)
        self.step("critic", losses.mean())
        unit_lengths(self.critic.weights, norms=True)
        self.critic.follow(members)
        self.move_slow(TAU)


@pytest.mark.parametrize("last", [4.0, 60.0], ids=["by the deviation", "by the largest return"])
def test_fifty_updates_are_those_of_its_authors(last: float) -> None:
    agent = make_agent(*SMALL)
    assert agent.alpha.item() == pytest.approx(0.01)
    expected = FlashSAC(agent)
    rewards = [last if done else reward for reward, done in EPISODE * UPDATES]
    returns = formulas.discounted_returns(rewards, [done for _, done in EPISODE * UPDATES], GAMMA)
    for k, (batch, eps, more) in enumerate(batches(UPDATES, ROWS)):
        ended = EPISODE[k % 4][1]
        agent.reward_normaliser.observe(np.array([rewards[k]]), np.array([ended]), GAMMA)
        spread = max(np.std(returns[: k + 1]), max(np.abs(returns[: k + 1])) / 5)
        update(agent, batch, eps, more)
        if k % 2 == 0:
            expected.update_actor(batch.obs, batch.next_obs, more)
        expected.update_critic(batch, batch.reward / spread, eps)
    expected.assert_same(agent)


def test_noise_is_held_through_an_episodes_end_and_10_000_random_steps_come_first() -> None:
    agent = make_agent(*SMALL, "agent.exploration.exponent=0.1", "agent.exploration.max_steps=1000")
    obs, ended = np.zeros((2, OBS_DIM)), np.array([True, False])
    agent.act(obs, sample=True)
    noise = agent.exploration.state_dict()["noise"]
    agent.observe(obs, np.zeros((2, ACTION_DIM)), np.zeros(2), obs, ended, ~ended)
    agent.act(obs, sample=True)
    assert torch.equal(agent.exploration.state_dict()["noise"], noise)
    assert composed.settings("agent=flash_sac").num_seed_steps == 10_000
