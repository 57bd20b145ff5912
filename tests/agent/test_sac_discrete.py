"""SAC for discrete actions: its updates against the paper's equations, and its actions in environment and buffer."""

import math
from pathlib import Path

import gymnasium as gym
import numpy as np
import probes
import pytest
import torch
from agents import ACTION_DIM, SMALL, make_agent
from formulas import SoftActorCritic, batches, mlp, update

from agent.networks.distributions import Categorical
from agent.policy import load_policy
from dmc2gym.wrappers import ActionMap
from replay_buffer import Batch


class SacDiscrete(SoftActorCritic):
    """Equations (10) to (12) of arXiv 1910.07207, action by action."""

    target_entropy = 0.98 * math.log(ACTION_DIM)

    def probabilities(self, obs: torch.Tensor) -> torch.Tensor:
        powers = torch.exp(self.actor(obs))
        return powers / powers.sum(1, keepdim=True)

    def update(self, batch: Batch) -> None:
        alpha, rows = self.alpha(), range(len(batch.reward))
        with torch.no_grad():
            pi = self.probabilities(batch.next_obs)
            q = torch.minimum(*(member(batch.next_obs) for member in self.slow.members()))
            value = sum(pi[:, a] * (q[:, a] - alpha * torch.log(pi[:, a])) for a in range(ACTION_DIM))
            y = batch.reward[:, 0] + 0.99 * batch.discount[:, 0] * value
        taken = [int(a) for a in batch.action[:, 0]]
        errors = [member(batch.obs)[rows, taken] - y for member in self.critic.members()]
        self.adams["critic"].step(sum((error**2).mean() for error in errors), 3e-4)  # type: ignore[arg-type]
        with torch.no_grad():  # the critics after their step
            q = torch.minimum(*(member(batch.obs) for member in self.critic.members()))
        pi = self.probabilities(batch.obs)
        costs = [pi[:, a] * (alpha * torch.log(pi[:, a]) - q[:, a]) for a in range(ACTION_DIM)]
        entropy = -(pi * torch.log(pi)).sum(1).mean().detach()
        self.adams["actor"].step(sum(costs).mean(), 3e-4)  # type: ignore[union-attr]
        self.adams["alpha"].step(self.temperature["log"].exp() * (entropy - self.target_entropy), 3e-4)
        self.move_slow(0.005)


@pytest.mark.usefixtures("float64")
def test_fifty_updates_are_those_of_the_paper() -> None:
    sizes = ("agent.batch_size=16", "agent.critic.hidden_dim=12", "agent.actor.hidden_dim=8")
    agent = make_agent("agent=sac_discrete", *sizes, "agent.target_entropy_share=0.98")
    expected, random = SacDiscrete(agent, mlp), torch.Generator().manual_seed(2)
    for batch, *_ in batches(50, 16):
        discrete = batch._replace(action=torch.randint(ACTION_DIM, (16, 1), generator=random).to(batch.obs.dtype))
        update(agent, discrete)  # the update needs no noise
        expected.update(discrete)
    expected.assert_same(agent)
    assert agent.temperature().item() != pytest.approx(1.0, abs=1e-3)


def test_the_target_of_bins_is_the_mixture_of_the_actions() -> None:
    """Each action's return is certain, in one of two bins, so the target has the policy's probabilities."""
    bins = "{_target_: agent.networks.CategoricalHead, _partial_: true, num_bins: 2, bounds: [0, 1]}"
    agent = make_agent("agent=sac_discrete", *SMALL, f"agent.critic.head={bins}", "agent.init_temperature=1e-9")
    seen: list[torch.Tensor] = []
    agent.step_critic = lambda batch, outputs, target: seen.append(target) or ({}, {})
    certain = torch.tensor([100.0, -100.0] * 3 + [-100.0, 100.0] * 3)  # the first three actions return 0, the others 1
    agent.target_outputs = lambda obs: certain.expand(2, len(obs), -1)
    batch = next(iter(batches(1, 8)))[0]
    agent.schedules.add(discount=1.0)
    ones = torch.ones(8, 1)
    agent.update_critic(batch._replace(reward=0 * ones, discount=ones, action=0 * ones), agent.alpha)
    probabilities = agent.actor(batch.next_obs).log_probs.exp().detach()
    torch.testing.assert_close(seen[0][:, 1], probabilities[:, 3:].sum(1), rtol=1e-4, atol=1e-4)


def test_samples_come_as_often_as_they_are_probable() -> None:
    probabilities = torch.tensor([0.5, 0.0, 0.2, 0.3])
    noise = torch.randn(100_000, 1, generator=torch.Generator().manual_seed(1))
    drawn = Categorical(probabilities.log().expand(len(noise), -1)).sample(noise)
    counts = torch.bincount(drawn[:, 0], minlength=4)
    assert counts[1] == 0 and drawn.dtype == torch.int64
    expected = 100_000 * probabilities[[0, 2, 3]]
    assert ((counts[[0, 2, 3]] - expected).square() / expected).sum() < 13.8  # chi-square, 2 degrees, p = 0.001


def test_an_action_is_an_integer_from_the_environment_to_the_buffer_and_back(tmp_path: Path) -> None:
    """ProbeChoices takes the actions -1, 0 and 1 only; the best one is the sign of the number it shows."""
    learning = ("agent.critic_lr=1e-2", "agent.actor_lr=1e-2", "agent.init_temperature=0.01", "agent.alpha_lr=0")
    run = probes.train(tmp_path, "env=ProbeChoices-v0", "agent=sac_discrete", *learning, "num_train_steps=500")
    actions = run.replay_buffer.stored(0, run.replay_buffer.num_added).action[:, 0].tolist()
    assert set(actions[:100]) == {0.0, 1.0, 2.0} == set(actions)
    obs = np.array([[2, 1], [-2, 1]], np.float32)
    assert run.agent.act(obs).tolist() == [[2], [0]]
    one = run.agent.act(obs[0], sample=True)
    assert one.shape == (1,) and one.dtype == np.int64
    run.agent.save_policy(tmp_path / "alone.pt")
    policy = load_policy(tmp_path / "alone.pt")
    assert policy.act(obs).tolist() == [[2], [0]]


def test_own_actions_are_counted_from_their_start() -> None:
    own = ActionMap(gym.spaces.Discrete(5, start=-2))
    assert own.to_env(np.array([3], np.float32)) == 1 and own.to_env(np.array([3])).dtype == np.int64
    np.testing.assert_array_equal(own.inverse(np.array([-2, 2, 0])), np.array([[0], [4], [2]], np.float32))
    large = ActionMap(gym.spaces.Discrete(2**24))
    assert large.to_env(large.inverse(np.array([2**24 - 1]))[0]) == 2**24 - 1
