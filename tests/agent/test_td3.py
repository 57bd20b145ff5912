"""TD3's updates against its paper and its authors' code, and its actor's noise."""

from pathlib import Path
from typing import Any

import formulas
import numpy as np
import pytest
import torch
from agents import OBS_DIM, SMALL, make_agent
from formulas import Network, assert_same, batches, mlp, update

from agent.policy import load_policy
from replay_buffer import Batch


class Td3:
    """The whole algorithm, from algorithm 1 of the paper and its authors' code, on a copy of an agent's weights."""

    def __init__(self, agent: Any):
        self.actor, self.critic, self.slow_actor, self.slow_critic = (
            Network.of(module.trunk, mlp)
            for module in (agent.actor, agent.critic, agent.actor_target, agent.critic_target)
        )
        self.actor_adam, self.critic_adam = formulas.Adam(self.actor.weights), formulas.Adam(self.critic.weights)
        self.count = 0

    def update(self, batch: Batch, eps: torch.Tensor) -> None:
        self.count += 1
        with torch.no_grad():
            noise = (0.2 * eps).clamp(-0.5, 0.5)
            next_action = (torch.tanh(self.slow_actor(batch.next_obs)) + noise).clamp(-1, 1)
            next_q = torch.stack(self.q(self.slow_critic, batch.next_obs, next_action)).min(0).values
            y = batch.reward + 0.99 * batch.discount * next_q
        first, second = self.q(self.critic, batch.obs, batch.action)
        self.critic_adam.step(((first - y) ** 2).mean() + ((second - y) ** 2).mean(), 3e-4)
        if self.count % 2 == 0:  # the actor maximises the first critic after the critics' step
            self.actor_adam.step(-self.q(self.critic, batch.obs, torch.tanh(self.actor(batch.obs)))[0].mean(), 3e-4)
            for slow, net in ((self.slow_actor, self.actor), (self.slow_critic, self.critic)):
                for name, weight in net.weights.items():
                    slow.weights[name] = 0.995 * slow.weights[name].detach() + 0.005 * weight.detach()

    def q(self, critics: Network, obs: torch.Tensor, action: torch.Tensor) -> list[torch.Tensor]:
        return [critic(torch.cat([obs, action], 1)) for critic in critics.members()]


@pytest.mark.usefixtures("float64")
def test_fifty_updates_are_those_of_its_authors() -> None:
    agent = make_agent("agent=td3", "agent.batch_size=16", "agent.critic.hidden_dim=12", "agent.actor.hidden_dim=8")
    expected = Td3(agent)
    for batch, eps, _ in batches(50, 16):
        eps = 3 * eps  # so that the clip takes effect
        update(agent, batch, eps)
        expected.update(batch, eps)
    for module, net in (
        (agent.actor, expected.actor),
        (agent.critic, expected.critic),
        (agent.actor_target, expected.slow_actor),
        (agent.critic_target, expected.slow_critic),
    ):
        assert_same(module.trunk, net)


def test_noise_of_a_fixed_size_in_training_and_none_in_evaluation(tmp_path: Path) -> None:
    agent = make_agent("agent=td3", *SMALL, "agent.actor.exploration_std=0.3")
    obs = np.zeros((20_000, OBS_DIM), np.float32)
    greedy = agent.act(obs)
    np.testing.assert_allclose(greedy, greedy[:1].repeat(len(obs), 0), atol=1e-6)
    noise = agent.act(obs, sample=True) - greedy
    assert noise.std(0) == pytest.approx(0.3, rel=0.05)
    agent.save_policy(tmp_path / "policy.pt")
    policy = load_policy(tmp_path / "policy.pt")
    np.testing.assert_array_equal(policy.act(obs), greedy)
    assert policy.act(obs, sample=True).std(0) == pytest.approx(0.3, rel=0.05)
