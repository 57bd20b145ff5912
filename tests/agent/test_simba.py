"""SimBa against its description (arXiv 2410.09754) and its authors' code, in plain operations and float64."""

import math
from typing import Any

import formulas
import pytest
import torch
from agents import ACTION_DIM, OBS_DIM, make_agent
from formulas import Network, assert_same, batches, policy, soft_limited, update

from agent.networks.residual import PreNormBlock
from replay_buffer import Batch

pytestmark = pytest.mark.usefixtures("float64")

ROWS, UPDATES, TAU, LR = 16, 50, 0.005, 1e-4
SMALL = ("agent=simba", "action_repeat=2", f"agent.batch_size={ROWS}")
NARROW = ("agent.critic.hidden_dim=12", "agent.actor.hidden_dim=8")
GAMMA = 0.99  # for episodes of 500 decisions


def residual(net: Network, x: torch.Tensor, training: bool) -> torch.Tensor:
    """Linear, residual blocks (layer norm, linear, ReLU, linear), layer norm, linear."""
    names = [name for name in net.weights if name.endswith("up.weight")]
    x = net.linear("0", x)
    for block in range(1, len(names) + 1):
        h = torch.relu(net.linear(f"{block}.up", net.layer_norm(f"{block}.norm", x, 1e-6)))
        x = x + net.linear(f"{block}.down", h)
    return net.linear(str(len(names) + 2), net.layer_norm(str(len(names) + 1), x, 1e-6))


class SimBa:
    """The whole algorithm on a copy of an agent's weights; docs/AGENTS.md names the differences."""

    def __init__(self, agent: Any):
        self.actor, self.critic, self.slow = (
            Network.of(module.trunk, residual) for module in (agent.actor, agent.critic, agent.critic_target)
        )
        self.temperature = {"log": torch.tensor(math.log(0.01), requires_grad=True)}
        self.actor_adam = formulas.Adam(self.actor.weights, weight_decay=1e-2)
        self.critic_adam = formulas.Adam(self.critic.weights, weight_decay=1e-2)
        self.alpha_adam = formulas.Adam(self.temperature)

    def alpha(self) -> torch.Tensor:
        return self.temperature["log"].detach().exp()

    def q(self, critic: Network, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        (only,) = critic.members()
        return only(torch.cat([obs, action], 1))[:, 0]

    def update(self, batch: Batch, obs: torch.Tensor, next_obs: torch.Tensor, eps: Any, more: Any) -> None:
        """Updates actor, temperature, critic and target in this order, each with the new values of those before it."""
        action, log_prob = policy(self.actor, obs, more, soft_limited)
        self.actor_adam.step((self.alpha() * log_prob - self.q(self.critic, obs, action)).mean(), LR)
        entropy_error = -log_prob.detach().mean() + ACTION_DIM / 2
        self.alpha_adam.step(self.temperature["log"].exp() * entropy_error, LR)
        with torch.no_grad():
            next_action, next_log_prob = policy(self.actor, next_obs, eps, soft_limited)
            next_value = self.q(self.slow, next_obs, next_action) - self.alpha() * next_log_prob
            y = batch.reward[:, 0] + GAMMA * batch.discount[:, 0] * next_value
        self.critic_adam.step(((self.q(self.critic, obs, batch.action) - y) ** 2).mean(), LR)
        for name, weight in self.critic.weights.items():
            self.slow.weights[name] = (1 - TAU) * self.slow.weights[name].detach() + TAU * weight.detach()


def test_fifty_updates_are_those_of_its_authors() -> None:
    agent = make_agent(*SMALL, *NARROW)
    expected = SimBa(agent)
    seen = 3 * torch.randn(40, OBS_DIM, generator=torch.Generator().manual_seed(2)) + 1
    agent.observation_normaliser.observe(seen.numpy())
    mean = seen.sum(0) / 40
    std = torch.sqrt(((seen - mean) ** 2).sum(0) / 40 + 1e-8)
    for batch, eps, more in batches(UPDATES, ROWS):
        update(agent, batch, eps, more)
        expected.update(batch, (batch.obs - mean) / std, (batch.next_obs - mean) / std, eps, more)
    assert_same(agent.critic.trunk, expected.critic)
    assert_same(agent.actor.trunk, expected.actor)
    for name, weight in expected.slow.weights.items():
        torch.testing.assert_close(agent.critic_target.trunk.get_parameter(name), weight, rtol=0, atol=1e-8)
    torch.testing.assert_close(agent.alpha, expected.alpha(), rtol=0, atol=1e-8)


def test_blocks_start_he_normal_and_the_other_layers_orthogonal() -> None:
    agent = make_agent(*SMALL)
    trunk = agent.critic.trunk
    blocks = [layer for layer in trunk if isinstance(layer, PreNormBlock)]
    assert len(blocks) == 2 and blocks[0].up.weight.shape == (1, 512, 2048)
    for block in blocks:
        for layer, std in ((block.up, 0.0625), (block.down, 0.03125)):
            weight = layer.weight.detach()
            assert weight.std().item() == pytest.approx(std, rel=0.005)
            assert weight.mean().abs() < 0.01 * std and not layer.bias.any()
            # Truncated, as in flax, at two standard deviations of the full normal, which are 2.27 of the truncated one.
            assert 2.25 < weight.abs().max() / std < 2.28
    for layer in (trunk[0], trunk[-1]):
        gram = layer.weight[0].T @ layer.weight[0] if layer is trunk[-1] else layer.weight[0] @ layer.weight[0].T
        torch.testing.assert_close(gram.detach(), torch.eye(len(gram)))


def test_there_is_one_critic() -> None:
    agent = make_agent(*SMALL, *NARROW)
    assert agent.critic(torch.zeros(3, OBS_DIM), torch.zeros(3, ACTION_DIM)).shape == (1, 3, 1)
