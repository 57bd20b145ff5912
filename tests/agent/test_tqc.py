"""TQC against its paper (arXiv 2005.04269) and its authors' code, in plain operations and float64."""

from typing import Any

import formulas
import pytest
import torch
from agents import ACTION_DIM, make_agent
from formulas import Network, assert_same, batches, policy, update

from replay_buffer import Batch

GAMMA, TAU, LR, ROWS, UPDATES = 0.99, 0.005, 3e-4, 16, 50
CRITICS, QUANTILES, DROPPED = 5, 25, 2


def plain(net: Network, x: torch.Tensor, training: bool) -> torch.Tensor:
    last = len(net.weights) - 2  # layers are named 0, 2, 4, …, and have a weight and a bias each
    for layer in range(0, last, 2):
        x = torch.relu(net.linear(str(layer), x))
    return net.linear(str(last), x)


def clamped(s: torch.Tensor) -> torch.Tensor:
    return s.clamp(-20, 2)


class Tqc:
    """The whole algorithm on a copy of an agent's weights; docs/AGENTS.md names the differences."""

    def __init__(self, agent: Any):
        self.actor, self.critic, self.slow = (
            Network.of(module.trunk, plain) for module in (agent.actor, agent.critic, agent.critic_target)
        )
        self.temperature = {"log": torch.tensor(0.0, requires_grad=True)}
        self.actor_adam, self.critic_adam = formulas.Adam(self.actor.weights), formulas.Adam(self.critic.weights)
        self.alpha_adam = formulas.Adam(self.temperature)

    def quantiles(self, critics: Network, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """(B, N, K)"""
        return torch.stack([critic(torch.cat([obs, action], 1)) for critic in critics.members()], 1)

    def update(self, batch: Batch, eps: torch.Tensor, more: torch.Tensor) -> None:
        alpha = self.temperature["log"].detach().exp()
        with torch.no_grad():
            next_action, next_log_prob = policy(self.actor, batch.next_obs, eps, clamped)
            pool = self.quantiles(self.slow, batch.next_obs, next_action).flatten(1).sort(1).values
            kept = pool[:, : CRITICS * (QUANTILES - DROPPED)]
            y = batch.reward + GAMMA * batch.discount * (kept - alpha * next_log_prob[:, None])
        delta = y[:, None, None, :] - self.quantiles(self.critic, batch.obs, batch.action)[..., None]
        huber = torch.where(delta.abs() > 1, delta.abs() - 0.5, delta**2 / 2)
        tau = ((torch.arange(QUANTILES) + 0.5) / QUANTILES)[:, None]
        self.critic_adam.step(((tau - (delta < 0).to(delta.dtype)).abs() * huber).mean(), LR)
        for name, weight in self.critic.weights.items():
            self.slow.weights[name] = (1 - TAU) * self.slow.weights[name].detach() + TAU * weight.detach()
        action, log_prob = policy(self.actor, batch.obs, more, clamped)
        q = self.quantiles(self.critic, batch.obs, action).mean((1, 2))
        self.actor_adam.step((alpha * log_prob - q).mean(), LR)
        self.alpha_adam.step(-self.temperature["log"] * (log_prob.detach().mean() - ACTION_DIM), LR)


@pytest.mark.usefixtures("float64")
def test_fifty_updates_are_those_of_its_authors() -> None:
    sizes = (f"agent.batch_size={ROWS}", "agent.critic.hidden_dim=12", "agent.actor.hidden_dim=8")
    agent = make_agent("agent=tqc", *sizes)
    expected = Tqc(agent)
    for batch, eps, more in batches(UPDATES, ROWS):
        update(agent, batch, eps, more)
        expected.update(batch, eps, more)
    assert_same(agent.critic.trunk, expected.critic)
    assert_same(agent.critic_target.trunk, expected.slow)
    assert_same(agent.actor.trunk, expected.actor)
    torch.testing.assert_close(agent.temperature.parameter, expected.temperature["log"], rtol=0, atol=1e-8)


def test_critics_have_three_layers_of_512_units_and_the_actor_two_of_256() -> None:
    agent = make_agent("agent=tqc")
    assert [tuple(layer.weight.shape[1:]) for layer in agent.critic.trunk.layers][1:] == [(512, 512)] * 2 + [(512, 25)]
    assert [tuple(layer.weight.shape) for layer in agent.actor.trunk.layers][1:] == [(256, 256), (256, 2 * ACTION_DIM)]
