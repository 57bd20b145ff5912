"""REDQ and DroQ against their papers (arXiv 2101.05982, 2110.02034) and authors' code, in plain float64 operations."""

from typing import Any

import pytest
import torch
from agents import ACTION_DIM, make_agent
from formulas import Network, SoftActorCritic, batches, clamped, mlp, policy, update

from replay_buffer import Batch

GAMMA, TAU, LR, ROWS, UPDATES = 0.99, 0.005, 3e-4, 16, 50
DELAY = 20  # updates of the critics for each update of actor and temperature
NARROW = (f"agent.batch_size={ROWS}", "agent.critic.hidden_dim=12", "agent.actor.hidden_dim=8")
Masks = list[torch.Tensor]  # for each hidden layer, the factors of its features, (N, B, width)


def dropped(net: Network, x: torch.Tensor, masks: Masks) -> torch.Tensor:
    """One critic: twice linear, dropout, layer norm and ReLU, then linear."""
    for layer, mask in zip((0, 4), masks, strict=True):
        x = torch.relu(net.layer_norm(str(layer + 2), net.linear(str(layer), x) * mask, 1e-5))
    return net.linear("8", x)


class Redq(SoftActorCritic):
    """In every `DELAY`-th update, the gradients of actor, temperature and critics are at the values before it."""

    count = 0

    def q(self, critics: Network, obs: torch.Tensor, action: torch.Tensor, masks: Masks | None) -> torch.Tensor:
        """(N, B)"""
        x = torch.cat([obs, action], 1)
        if masks is None:
            return torch.stack([critic(x)[:, 0] for critic in critics.members()])
        of_members = [[mask[i] for mask in masks] for i in range(len(masks[0]))]
        return torch.stack(
            [dropped(critic, x, own)[:, 0] for critic, own in zip(critics.members(), of_members, strict=True)]
        )

    def update(self, batch: Batch, eps: Any, more: Any, pair: list[int], masks: dict[str, Masks]) -> None:
        self.count += 1
        alpha = self.alpha()
        with torch.no_grad():
            next_action, next_log_prob = policy(self.actor, batch.next_obs, eps, clamped)
            next_q = self.q(self.slow, batch.next_obs, next_action, masks.get("critic_target"))[pair].min(0).values
            y = batch.reward[:, 0] + GAMMA * batch.discount[:, 0] * (next_q - alpha * next_log_prob)
        errors = self.q(self.critic, batch.obs, batch.action, masks.get("critic")) - y
        critic_loss = (errors**2).mean(1).sum()
        if self.count % DELAY == 0:
            action, log_prob = policy(self.actor, batch.obs, more, clamped)
            q = self.q(self.critic, batch.obs, action, masks.get("frozen_critic")).mean(0)
            self.adams["actor"].step((alpha * log_prob - q).mean(), LR)
            entropy_error = -log_prob.detach().mean() + ACTION_DIM
            self.adams["alpha"].step(self.temperature["log"] * entropy_error, LR)
        self.adams["critic"].step(critic_loss, LR)
        self.move_slow(TAU)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["redq", "droq"])
def test_fifty_updates_are_those_of_its_authors(name: str) -> None:
    agent = make_agent(f"agent={name}", *NARROW)
    assert agent.alpha == 1
    expected = Redq(agent, mlp)
    for batch, eps, more in batches(UPDATES, ROWS):
        numbers, pair, masks = [eps], [0, 1], {}
        if name == "redq":
            numbers += [chances := torch.rand(10)]
            pair = chances.topk(2).indices.tolist()
        uniform = {part: list(torch.rand(2, 2, ROWS, 12)) for part in ("critic_target", "critic", "frozen_critic")}
        if name == "droq":
            masks = {part: [(u < 0.99) / 0.99 for u in layers] for part, layers in uniform.items()}
            numbers += [*uniform["critic_target"], *uniform["critic"], more, *uniform["frozen_critic"]]
        expected.update(batch, eps, more, pair, masks)
        update(agent, batch, *numbers, *([more] if name == "redq" else []))
    assert len(expected.critic.members()) == {"redq": 10, "droq": 2}[name]
    expected.assert_same(agent)
    assert expected.adams["alpha"].count == 2
