"""XQC against its description (arXiv 2509.25174) and its authors' code, in plain operations and float64."""

from typing import Any

import composed
import formulas
import numpy as np
import pytest
import torch
from agents import ACTION_DIM, make_agent
from formulas import Network, SoftActorCritic, batches, categorical_losses, policy, unit_lengths, update

from replay_buffer import Batch

pytestmark = pytest.mark.usefixtures("float64")

ROWS, UPDATES, STEPS, TAU = 16, 50, 100, 0.005
SMALL = (
    *("agent=xqc", "action_repeat=2", f"num_train_steps={STEPS}", f"agent.batch_size={ROWS}"),
    *("agent.critic.hidden_dim=12", "agent.critic.hidden_depth=2", "agent.actor.hidden_dim=8"),
    "agent.actor.hidden_depth=2",
)
GAMMA = 0.99  # for episodes of 500 decisions


def normed(net: Network, x: torch.Tensor, training: bool) -> torch.Tensor:
    """Batch norm, twice linear without bias, batch norm and ReLU, then linear."""
    x = net.batch_norm("0", x, training)
    for linear, norm in (("1", "2"), ("4", "5")):
        x = torch.relu(net.batch_norm(norm, net.linear(linear, x), training))
    return net.linear("7", x)


def cut_off(s: torch.Tensor) -> torch.Tensor:
    return s.clamp(-10, 2)


class XQC(SoftActorCritic):
    def __init__(self, agent: Any):
        super().__init__(agent, normed, eps=1e-3)
        self.centres = torch.linspace(-5, 5, 101)

    def step(self, name: str, loss: torch.Tensor) -> None:
        """Uses the rate after this optimizer's own steps; the actor and the temperature make a third as many."""
        self.adams[name].step(loss, 3e-4 - 2.7e-4 * self.adams[name].count / STEPS)

    def update_critic(self, batch: Batch, reward: torch.Tensor, eps: torch.Tensor) -> None:
        losses, members = categorical_losses(self, batch, reward, eps, cut_off)
        self.step("critic", losses.sum())
        unit_lengths(self.critic.weights, norms=False)
        self.critic.follow(members)
        self.move_slow(TAU)

    def update_actor(self, obs: torch.Tensor, eps: torch.Tensor, alpha: torch.Tensor, steps: bool) -> None:
        """Moves the running statistics in every update, the weights and the temperature only if `steps`."""
        action, log_prob = policy(self.actor, obs, eps, cut_off, training=True)
        if steps:
            values = [torch.softmax(q(torch.cat([obs, action], 1)), 1) @ self.centres for q in self.critic.members()]
            self.step("actor", (alpha * log_prob - torch.minimum(*values)).mean())
            unit_lengths(self.actor.weights, norms=False)
            self.step("alpha", (self.temperature["log"].exp() * (-log_prob.detach() + ACTION_DIM / 2)).mean())
        self.actor.follow()


def test_fifty_updates_are_those_of_its_authors() -> None:
    agent = make_agent(*SMALL)
    assert agent.alpha.item() == pytest.approx(0.01)
    expected = XQC(agent)
    rewards, ended = torch.randn(UPDATES).tolist(), [k % 4 == 3 for k in range(UPDATES)]
    rewards[3], rewards[7] = 9.0, -30.0  # large rewards at the ends of episodes
    returns = formulas.discounted_returns(rewards, ended, GAMMA)
    for k, (batch, eps, more) in enumerate(batches(UPDATES, ROWS)):
        agent.reward_normaliser.observe(np.array([rewards[k]]), np.array([ended[k]]), GAMMA)
        spread = np.std(returns[: k + 1]) or 1.0
        update(agent, batch, eps, more)
        alpha = expected.alpha()
        expected.update_critic(batch, batch.reward / spread, eps)
        expected.update_actor(batch.obs, more, alpha, steps=k % 3 == 0)
    expected.assert_same(agent)


@pytest.mark.parametrize(
    ("overrides", "decisions"),
    [
        (("action_repeat=2",), 500),
        (("env=Pendulum",), 200),  # an id without a version means the newest
        (("env=Pendulum-v1", "+env_kwargs.max_episode_steps=300", "action_repeat=2"), 150),
        (("env=Pendulum-v1", "action_repeat=4"), 50),
    ],
)
def test_the_discount_follows_the_episodes_length(overrides: tuple[str, ...], decisions: int) -> None:
    expected = min(max((decisions / 5 - 1) / (decisions / 5), 0.95), 0.995)
    for agent in ("simba", "xqc"):
        cfg = composed.settings(f"agent={agent}", *overrides)
        assert cfg.agent["discount"] == pytest.approx(expected, rel=1e-12)
        assert cfg.updates_per_step == 2 and cfg.num_seed_steps == 5000 * cfg.action_repeat
