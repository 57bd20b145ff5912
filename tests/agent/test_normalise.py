"""Running normalisers against two passes over the same data, what they apply to, and what they observe."""

import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
import torch
from agents import ACTION_DIM, OBS_DIM, SMALL, Always, Silent, make_agent, make_batch
from same_run import same

from agent.normalise import ObservationNormaliser, RewardNormaliser
from agent.policy import load_policy
from utils import eval_mode

CPU = torch.device("cpu")
RUNNING, RETURNS = "agent/observation_normaliser=running", "agent/reward_normaliser=returns"


def show(agent: Any, rewards: np.ndarray, obs: np.ndarray, ended: np.ndarray | None = None) -> None:
    """Lets an agent observe one step of as many environments as there are rewards."""
    ended = np.zeros(len(rewards), bool) if ended is None else ended
    agent.observe(obs, np.zeros((len(rewards), ACTION_DIM)), rewards, obs + 1, ended, np.zeros_like(ended))


def test_observations_far_from_zero_against_two_passes_in_extended_precision() -> None:
    rng = np.random.default_rng(0)
    # Means of up to a million standard deviations: a sum of squares in float32 would have no digit left.
    seen = (rng.normal(size=(5000, 3)) * [1.0, 1e-3, 20.0] + [5.0, 1e3, -4e5]).astype(np.float32)
    normaliser = ObservationNormaliser(3)
    for rows in np.split(seen, np.cumsum(rng.integers(1, 40, 200))):
        if len(rows):
            normaliser.observe(rows)
    exact = seen.astype(np.longdouble)
    np.testing.assert_allclose(normaliser.mean, exact.mean(0).astype(float), rtol=1e-12)
    np.testing.assert_allclose(normaliser.variance, exact.var(0).astype(float), rtol=1e-9)
    found = normaliser(torch.from_numpy(seen[:100]))
    expected = (exact[:100] - exact.mean(0)) / np.sqrt(exact.var(0) + 1e-8)
    # What float32 leaves: one unit in the last place of the observation, in standard deviations.
    rounding = np.spacing(np.abs(seen[:100])) / np.sqrt(exact.var(0).astype(float))
    assert (np.abs(found.numpy() - expected) <= rounding + 1e-5 * np.abs(expected) + 1e-6).all()


def test_nothing_seen_is_nothing_changed_and_a_constant_is_zero() -> None:
    normaliser, obs = ObservationNormaliser(2), torch.tensor([[3.0, -7.0]])
    assert torch.equal(normaliser(obs), obs)
    normaliser.observe(obs.numpy())
    assert torch.equal(normaliser(obs), torch.zeros(1, 2))
    rewards = RewardNormaliser(CPU)
    rewards.observe(np.zeros(2), np.zeros(2, bool), 0.99)
    assert rewards(torch.ones(1, 1)).item() == 1.0


@pytest.mark.parametrize("overrides", [(), ("agent=sac_v",), ("agent=sac_2018", "agent.actor.num_components=3")])
def test_acting_and_updates_are_those_of_a_plain_agent_on_normalised_observations(
    tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    """The target has the normalised reward times reward_scale, and the log the raw one."""
    plain = make_agent(*overrides, *SMALL, "reward_scale=1")
    agent = make_agent(*overrides, *SMALL, RUNNING, RETURNS, "reward_scale=3")
    rng = np.random.default_rng(0)
    for k in range(50):  # returns of 2 and -2, and of 0 from then on
        show(agent, np.array([2.0, -2.0]) * (k == 0), (5 + 3 * rng.normal(size=(2, OBS_DIM))).astype(np.float32))
    normalised = agent.observation_normaliser
    assert normalised.count == 200  # obs and next_obs of two environments

    obs = (5 + 3 * rng.normal(size=(30, OBS_DIM))).astype(np.float32)
    by_hand = ((obs - normalised.mean.numpy()) / np.sqrt(normalised.variance.numpy() + 1e-8)).astype(np.float32)
    for sample in (False, True):
        np.testing.assert_allclose(agent.act(obs, sample), plain.act(by_hand, sample), atol=1e-5)
    agent.save_policy(tmp_path / "policy.pt")
    np.testing.assert_array_equal(load_policy(tmp_path / "policy.pt").act(obs), agent.act(obs))

    batch, log = make_batch(32), Silent()
    reward = 3 * agent.reward_normaliser(batch.reward)
    by_hand_batch = batch._replace(obs=normalised(batch.obs), next_obs=normalised(batch.next_obs), reward=reward)
    agent.update(Always(batch), log, 0)
    plain.update(Always(by_hand_batch), Silent(), 0)
    for name in ("actor", "critic"):
        torch.testing.assert_close(getattr(agent, name).state_dict(), getattr(plain, name).state_dict())
    assert log.values["train/batch_reward"] == pytest.approx(batch.reward.mean().item())


def test_an_evaluation_leaves_the_agent_as_it_was(tmp_path: Path) -> None:
    overrides = ("agent/observation_normaliser=running", RETURNS, "agent/exploration=held", "num_train_steps=150")
    run = probes.train(tmp_path, "env=Pendulum-v1", *overrides)
    assert run.agent.observation_normaliser.count == 300  # the two final evaluation episodes of 200 steps add nothing
    before = deepcopy(run.agent.state_dict())
    run.evaluations.evaluator.evaluate(run.agent, 7)
    with eval_mode(run.agent):
        run.agent.act(np.zeros((5, 3), np.float32), sample=True)  # with noise of its own, not training's
    after = run.agent.state_dict()
    assert {name for name, value in before.items() if not same(after[name], value)} == {"policy"}  # its generator


def two_passes(rewards: np.ndarray, ended: np.ndarray, discount: float, bound: float | None) -> float:
    """The divisor of rewards after all these steps, from its definition; the arrays are (steps, num_envs)."""
    returns = []
    for env in range(rewards.shape[1]):
        start = 0
        for t in range(len(rewards)):
            start = t if ended[t, env] else start  # G is the last reward alone; the next episode continues from it
            returns.append(sum(discount ** (t - i) * rewards[i, env] for i in range(start, t + 1)))
    deviation = math.sqrt(np.mean((np.array(returns) - np.mean(returns)) ** 2))
    return deviation if bound is None else max(deviation, max(map(abs, returns)) / bound)


@pytest.mark.parametrize("bound", [5.0, 0.5, 1e6, None])
def test_rewards_against_two_passes(bound: float | None) -> None:
    rng = np.random.default_rng(1)
    rewards, ended = rng.normal(2.0, 3.0, (120, 3)), rng.random((120, 3)) < 0.1
    normaliser, other = RewardNormaliser(CPU, bound), RewardNormaliser(CPU, bound)
    for t in range(120):
        normaliser.observe(rewards[t], ended[t], 0.9)
        if t in (0, 1, 60, 119):
            expected = two_passes(rewards[: t + 1], ended[: t + 1], 0.9, bound)
            assert normaliser(torch.tensor([[6.0]])).item() == pytest.approx(6.0 / expected, rel=1e-6)
        if t == 60:
            other.load_state_dict(normaliser.state_dict())
            assert other(torch.ones(1)) == normaliser(torch.ones(1))
        elif t > 60:
            other.observe(rewards[t], ended[t], 0.9)
    assert other.state_dict() == normaliser.state_dict()


def test_an_episodes_end_of_either_kind_leaves_its_last_reward_alone() -> None:
    agent = make_agent(*SMALL, RETURNS)
    obs, action = np.zeros((3, OBS_DIM), np.float32), np.zeros((3, ACTION_DIM), np.float32)
    no_end, ends = np.zeros(3, bool), (np.array([True, False, False]), np.array([False, True, False]))
    agent.observe(obs, action, np.ones(3), obs, no_end, no_end)
    agent.observe(obs, action, np.full(3, 5.0), obs, *ends)
    np.testing.assert_allclose(agent.state_dict()["reward_normaliser"]["running"], [5, 5, 5 + 0.99])
