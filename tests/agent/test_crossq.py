"""CrossQ against its paper (arXiv 1902.05605) and authors' code, in plain operations, and what its state carries."""

from functools import partial
from typing import Any

import formulas
import pytest
import torch
from agents import ACTION_DIM, make_agent
from formulas import Network, assert_same, batches, clamped, policy, update

from replay_buffer import Batch

GAMMA, LR, ROWS, UPDATES, DELAY = 0.99, 1e-3, 16, 50, 3
WARM_UP = 10  # passes before batches are renormalised; the actor makes 16 in 50 updates


class CrossQ:
    """The whole algorithm, from the paper and its authors' code, on a copy of an agent's weights."""

    def __init__(self, agent: Any):
        self.passes = dict.fromkeys(("actor", "critic"), 0)
        self.actor = Network.of(agent.actor.trunk, partial(self.network, "actor"), eps=1e-3)
        self.critic = Network.of(agent.critic.trunk, partial(self.network, "critic"), eps=1e-3)
        self.temperature = {"log": torch.tensor(0.0, requires_grad=True)}
        self.actor_adam = formulas.Adam(self.actor.weights, beta1=0.5)
        self.critic_adam = formulas.Adam(self.critic.weights, beta1=0.5)
        self.alpha_adam = formulas.Adam(self.temperature)
        self.count = 0

    def network(self, part: str, net: Network, x: torch.Tensor, training: bool) -> torch.Tensor:
        """A norm (named 0), twice linear, ReLU and norm (1, 2, 3 and 4, 5, 6), then linear (7)."""
        renormalised = training and self.passes[part] >= WARM_UP
        norm = renormalise if renormalised else Network.batch_norm
        x = norm(net, "0", x, training)
        for layer in (1, 4):
            x = norm(net, str(layer + 2), torch.relu(net.linear(str(layer), x)), training)
        return net.linear("7", x)

    def update(self, batch: Batch, eps: torch.Tensor, more: torch.Tensor) -> None:
        self.count += 1
        alpha = self.temperature["log"].detach().exp()
        with torch.no_grad():
            next_action, next_log_prob = policy(self.actor, batch.next_obs, eps, clamped)
        ends = torch.cat([torch.cat([batch.obs, batch.action], 1), torch.cat([batch.next_obs, next_action], 1)])
        members = self.critic.members()
        q, next_q = torch.stack([member(ends, training=True)[:, 0] for member in members]).chunk(2, dim=1)
        next_value = next_q.detach().min(0).values - alpha * next_log_prob
        y = batch.reward[:, 0] + GAMMA * batch.discount[:, 0] * next_value
        self.critic_adam.step(0.5 * ((q - y) ** 2).mean(1).sum(), LR)
        self.critic.follow(members)
        self.passes["critic"] += 1
        if self.count % DELAY == 0:
            action, log_prob = policy(self.actor, batch.obs, more, clamped, training=True)
            values = [member(torch.cat([batch.obs, action], 1))[:, 0] for member in self.critic.members()]
            self.actor_adam.step((alpha * log_prob - torch.stack(values).min(0).values).mean(), LR)
            self.actor.follow()
            self.passes["actor"] += 1
            self.alpha_adam.step(self.temperature["log"].exp() * (ACTION_DIM - log_prob.detach().mean()), LR)


def renormalise(net: Network, name: str, x: torch.Tensor, training: bool) -> torch.Tensor:
    """Batch renormalisation as in CrossQ's code: r and d correct mean and variance before eps is added."""
    mean, var = x.mean(0), x.var(0, unbiased=False)
    old_mean, old_var = net.running[f"{name}.running_mean"][0], net.running[f"{name}.running_var"][0]
    net.seen |= {f"{name}.running_mean": mean.detach()[None], f"{name}.running_var": var.detach()[None]}
    r = (torch.sqrt(var + 1e-3) / torch.sqrt(old_var + 1e-3)).clamp(1 / 3, 3).detach()
    d = ((mean - old_mean) / torch.sqrt(old_var + 1e-3)).clamp(-5, 5).detach()
    z = (x - (mean - d * torch.sqrt(var) / r)) / torch.sqrt(var / r**2 + 1e-3)
    return z * net.weights[f"{name}.scale"][0] + net.weights[f"{name}.shift"][0]


@pytest.mark.usefixtures("float64")
def test_fifty_updates_are_those_of_its_authors_in_and_after_the_warm_up() -> None:
    warm_up = (f"agent.{part}.network.norm.renorm_after={WARM_UP}" for part in ("actor", "critic"))
    sizes = (f"agent.batch_size={ROWS}", "agent.critic.hidden_dim=12", "agent.actor.hidden_dim=8")
    agent = make_agent("agent=crossq", *sizes, *warm_up)
    expected = CrossQ(agent)
    for batch, eps, more in batches(UPDATES, ROWS):
        update(agent, batch, eps, more)
        expected.update(batch, eps, more)
    assert_same(agent.critic.trunk, expected.critic)
    assert_same(agent.actor.trunk, expected.actor)
    torch.testing.assert_close(agent.temperature.parameter, expected.temperature["log"], rtol=0, atol=1e-8)
    assert expected.passes == {"actor": 16, "critic": 50}
