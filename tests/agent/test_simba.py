"""SimBa against its description (arXiv 2410.09754) and its authors' code, in plain operations and float64."""

from typing import Any

import pytest
import torch
from agents import ACTION_DIM, OBS_DIM, make_agent
from formulas import Network, SoftActorCritic, batches, policy, soft_limited, update

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


class SimBa(SoftActorCritic):
    def q(self, critic: Network, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        (only,) = critic.members()
        return only(torch.cat([obs, action], 1))[:, 0]

    def update(self, batch: Batch, obs: torch.Tensor, next_obs: torch.Tensor, eps: Any, more: Any) -> None:
        """Updates actor, temperature, critic and target in this order, each with the new values of those before it."""
        action, log_prob = policy(self.actor, obs, more, soft_limited)
        self.adams["actor"].step((self.alpha() * log_prob - self.q(self.critic, obs, action)).mean(), LR)
        entropy_error = -log_prob.detach().mean() + ACTION_DIM / 2
        self.adams["alpha"].step(self.temperature["log"].exp() * entropy_error, LR)
        with torch.no_grad():
            next_action, next_log_prob = policy(self.actor, next_obs, eps, soft_limited)
            next_value = self.q(self.slow, next_obs, next_action) - self.alpha() * next_log_prob
            y = batch.reward[:, 0] + GAMMA * batch.discount[:, 0] * next_value
        self.adams["critic"].step(((self.q(self.critic, obs, batch.action) - y) ** 2).mean(), LR)
        self.move_slow(TAU)


def test_fifty_updates_are_those_of_its_authors() -> None:
    agent = make_agent(*SMALL, *NARROW)
    assert agent.alpha.item() == pytest.approx(0.01)
    expected = SimBa(agent, residual, weight_decay=1e-2)
    seen = 3 * torch.randn(40, OBS_DIM, generator=torch.Generator().manual_seed(2)) + 1
    agent.observation_normaliser.observe(seen.numpy())
    mean = seen.sum(0) / 40
    std = torch.sqrt(((seen - mean) ** 2).sum(0) / 40 + 1e-8)
    for batch, eps, more in batches(UPDATES, ROWS):
        update(agent, batch, eps, more)
        expected.update(batch, (batch.obs - mean) / std, (batch.next_obs - mean) / std, eps, more)
    expected.assert_same(agent)


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
