"""TQC against its paper (arXiv 2005.04269) and its authors' code, in plain operations and float64."""

import pytest
import torch
from agents import ACTION_DIM, make_agent
from formulas import Network, SoftActorCritic, batches, clamped, mlp, policy, update

from replay_buffer import Batch

GAMMA, TAU, LR, ROWS, UPDATES = 0.99, 0.005, 3e-4, 16, 50
CRITICS, QUANTILES, DROPPED = 5, 25, 2


class Tqc(SoftActorCritic):
    def quantiles(self, critics: Network, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """(B, N, K)"""
        return torch.stack([critic(torch.cat([obs, action], 1)) for critic in critics.members()], 1)

    def update(self, batch: Batch, eps: torch.Tensor, more: torch.Tensor) -> None:
        alpha = self.alpha()
        with torch.no_grad():
            next_action, next_log_prob = policy(self.actor, batch.next_obs, eps, clamped)
            pool = self.quantiles(self.slow, batch.next_obs, next_action).flatten(1).sort(1).values
            kept = pool[:, : CRITICS * (QUANTILES - DROPPED)]
            y = batch.reward + GAMMA * batch.discount * (kept - alpha * next_log_prob[:, None])
        delta = y[:, None, None, :] - self.quantiles(self.critic, batch.obs, batch.action)[..., None]
        huber = torch.where(delta.abs() > 1, delta.abs() - 0.5, delta**2 / 2)
        tau = ((torch.arange(QUANTILES) + 0.5) / QUANTILES)[:, None]
        self.adams["critic"].step(((tau - (delta < 0).to(delta.dtype)).abs() * huber).mean(), LR)
        self.move_slow(TAU)
        action, log_prob = policy(self.actor, batch.obs, more, clamped)
        q = self.quantiles(self.critic, batch.obs, action).mean((1, 2))
        self.adams["actor"].step((alpha * log_prob - q).mean(), LR)
        self.adams["alpha"].step(-self.temperature["log"] * (log_prob.detach().mean() - ACTION_DIM), LR)


@pytest.mark.usefixtures("float64")
def test_fifty_updates_are_those_of_its_authors() -> None:
    sizes = (f"agent.batch_size={ROWS}", "agent.critic.hidden_dim=12", "agent.actor.hidden_dim=8")
    agent = make_agent("agent=tqc", *sizes)
    assert agent.alpha == 1
    expected = Tqc(agent, mlp)
    for batch, eps, more in batches(UPDATES, ROWS):
        update(agent, batch, eps, more)
        expected.update(batch, eps, more)
    expected.assert_same(agent)
