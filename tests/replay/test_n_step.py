"""n-step rows compared with their definition, in every storage, across episodes, environments and restarts."""

from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
import torch
from transitions import take_over

from replay.device import STORAGES
from replay.n_step import NStep
from replay_buffer import Batch, ReplayBuffer
from run.data.buffers import build_n_step
from settings import compose
from settings.schema import check
from utils import UserError

CPU = torch.device("cpu")
GAMMA, NUM_ENVS, STEPS = 0.9, 3, 90


class Episodes:
    """Steps of three environments: some episodes terminate, a limit ends others, and the last are unfinished."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        shape = (STEPS, NUM_ENVS)
        self.obs = rng.normal(size=(*shape, 2)).astype(np.float32)
        self.next_obs = rng.normal(size=(*shape, 2)).astype(np.float32)
        self.action = rng.uniform(-1, 1, (*shape, 1)).astype(np.float32)
        self.reward = rng.normal(size=shape)
        ends = rng.random(shape) < 0.2
        self.terminated = ends & (rng.random(shape) < 0.5)
        self.done = ends
        self.done[10:12] = True  # so that there are episodes of one step
        self.terminated[10:12] = [[True, False, True], [False, False, True]]
        self.steps = list(
            zip(self.obs, self.action, self.reward, self.next_obs, self.done, self.terminated, strict=True)
        )

    def expected(self, n: int, stop: int = STEPS) -> dict[bytes, tuple]:
        """Returns each row by its obs: the action, the n-step reward, next_obs, and the factor of gamma V'."""
        rows = {}
        for env in range(NUM_ENVS):
            for t in range(stop):
                last = next((i for i in range(t, min(t + n, stop)) if self.done[i, env]), t + n - 1)
                if last >= stop:
                    continue  # the row is not complete
                reward = sum(GAMMA ** (i - t) * self.reward[i, env] for i in range(t, last + 1))
                factor = 0.0 if self.terminated[last, env] else GAMMA ** (last - t)
                rows[self.obs[t, env].tobytes()] = self.action[t, env], reward, self.next_obs[last, env], factor
        return rows


def assert_rows(batch: Batch, expected: dict[bytes, tuple]) -> set[bytes]:
    drawn = [obs.numpy().tobytes() for obs in batch.obs]
    actions, rewards, next_obs, factors = zip(*(expected[obs] for obs in drawn), strict=True)
    np.testing.assert_array_equal(batch.action, actions)
    np.testing.assert_array_equal(batch.next_obs, next_obs)
    np.testing.assert_allclose(batch.reward[:, 0], rewards, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch.discount[:, 0], factors, rtol=1e-6)
    return set(drawn)


def make(storage: str, capacity: int) -> ReplayBuffer:
    return STORAGES[storage]((2,), (1,), capacity, CPU)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("storage", STORAGES)
def test_rows_are_the_definitions_whatever_ends_when(storage: str, n: int) -> None:
    episodes, n_step, buffer = Episodes(), NStep(n, GAMMA), make(storage, 1000)
    for t, step in enumerate(episodes.steps, start=1):
        buffer.add_batch(*n_step.rows(*step))
        assert len(buffer) + n_step.num_pending == t * NUM_ENVS
        if t in (1, 5, 11, 12, 40, STEPS) and len(buffer):
            expected = episodes.expected(n, stop=t)
            assert assert_rows(buffer.sample(3000), expected) == set(expected)  # all rows, and no others
            assert len(buffer) == len(expected)


@pytest.mark.parametrize("storage", STORAGES)
def test_in_a_ring_the_newest_rows_stay(storage: str) -> None:
    episodes, n_step, buffer = Episodes(), NStep(4, GAMMA), make(storage, 50)
    for step in episodes.steps:
        buffer.add_batch(*n_step.rows(*step))
        if len(buffer):
            buffer.sample(1)
    drawn = assert_rows(buffer.sample(3000), episodes.expected(4))
    assert len(drawn) == 50
    assert episodes.obs[STEPS - 4, 0].tobytes() in drawn and episodes.obs[0, 0].tobytes() not in drawn


def test_what_waits_survives_a_restart_and_a_reused_array() -> None:
    episodes, straight, first = Episodes(), NStep(5, GAMMA), NStep(5, GAMMA)
    whole, halves = make("host", 1000), make("host", 1000)
    n_step = first
    for t, step in enumerate(episodes.steps):
        if t == 47:
            n_step, before = NStep(5, GAMMA), halves
            n_step.load_state_dict(first.state_dict())
            halves = make("device", 1000)
            take_over(halves, before)
            assert n_step.num_pending == first.num_pending > 0
        reused: tuple[Any, ...] = tuple(np.array(part) for part in step)
        completed = n_step.rows(*reused)
        for part in reused[:3]:  # the new rows may still use the others
            part.fill(0)
        assert completed[0].dtype == completed[1].dtype == np.float32
        halves.add_batch(*completed)
        whole.add_batch(*straight.rows(*step))
    np.testing.assert_array_equal(halves.rows, whole.rows)


def test_what_waits_goes_on_with_a_devices_tensors() -> None:
    """On the meta device any copy to an array fails; on a GPU such a copy would have to be waited for."""
    first, n_step = NStep(2, GAMMA), NStep(2, GAMMA)
    obs, actions, rewards, next_obs, done, terminated = Episodes().steps[0]
    first.rows(obs, actions, rewards, next_obs, done & False, terminated & False)
    n_step.load_state_dict(first.state_dict())
    sent = [torch.from_numpy(column).to("meta") for column in (obs, actions, next_obs)]
    rows = n_step.rows(sent[0], sent[1], rewards, sent[2], done & False, terminated & False)
    assert [rows[place].device.type for place in (0, 1, 3)] == ["meta"] * 3 and len(rows[0]) == NUM_ENVS


def test_without_a_discount_rewards_are_summed() -> None:
    n_step, (obs, action) = NStep(3), np.zeros((2, 1, 1))
    steps = [(obs, action, np.array([reward]), obs, np.array([False]), np.array([False])) for reward in (1.0, 2.0, 4.0)]
    (row,) = [row for step in steps for row in zip(*n_step.rows(*step), strict=True)]
    assert (row[2], row[6]) == (7.0, 1.0)


@pytest.mark.parametrize("n", [1, 3])
def test_a_step_with_something_missing_is_refused(n: int) -> None:
    step = [part[:3] for part in Episodes().steps[0]]
    with pytest.raises(ValueError, match="environments in a step of 0"):
        NStep(n).rows(*step[:-1], step[-1][:2])


def test_environments_do_not_come_and_go() -> None:
    n_step, steps = NStep(3), Episodes().steps
    n_step.rows(*steps[0])
    with pytest.raises(ValueError, match="environments in a step of 3"):
        n_step.rows(*(part[:2] for part in steps[1]))


def test_one_step_is_what_it_always_was() -> None:
    episodes, plain, buffer = Episodes(), make("host", 1000), make("host", 1000)
    for step in episodes.steps:
        for row in zip(*step, strict=True):
            plain.add(*row)
        buffer.add_batch(*NStep(1).rows(*step))
    np.testing.assert_array_equal(buffer.rows, plain.rows)
    assert set(np.unique(buffer.rows[:, 4])) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("env", "n", "value"),
    [("ProbeTwoSteps-v0", 3, 0.5), ("ProbeTimeLimit-v0", 3, 1 / (1 - 0.5))],
)
def test_values_that_are_known(tmp_path: Path, env: str, n: int, value: float) -> None:
    """With a discount of 0.5: 1 is paid on the second step; 1 is paid on every step, beyond the time limit as well."""
    rates = (
        "agent.critic_lr=1e-2",
        "agent.init_temperature=0",
        "agent.temperature.form=direct",
        "agent.critic_tau=0.2",
        "num_train_steps=400",
    )
    run = probes.train(
        tmp_path,
        *(f"env={env}", f"n_step={n}", "agent.discount=0.5", "agent.learnable_temperature=false", *rates),
    )
    obs = torch.zeros(20, 1)
    q = run.agent.critic(obs, torch.linspace(-0.8, 0.8, 20)[:, None]).detach()
    np.testing.assert_allclose(q, value, atol=0.05)


def test_as_many_updates_whatever_waits(tmp_path: Path) -> None:
    made = []
    for n in (1, 4):
        several = ("num_envs=3", f"n_step={n}", "num_train_steps=240", "num_seed_steps=120", "update_every=7")
        run = probes.train(tmp_path / str(n), "env=probes:ProbeNumbered-v0", *several)
        stored = run.replay_buffer.rows[: run.replay_buffer.num_added]
        assert (stored[:, 0] == stored[:, 5]).all()  # the episode's number, in obs and next_obs
        assert len(stored) + run.loop.parts.n_step.num_pending == 240
        made.append(run.agent.num_updates)
    assert made[0] == made[1] > 100


def test_a_discount_on_a_schedule_is_refused() -> None:
    linear = "{_target_: agent.schedule.Linear, start: 0.9, final: 0.99, steps: 10}"
    overrides = ["n_step=3", f"agent.discount={linear}"]
    cfg = check(compose.plain(compose.compose_config("train", overrides)))
    with pytest.raises(UserError, match=r"n_step=3: .* agent\.discount has to be a number, not a schedule; choose n_"):
        build_n_step(cfg)
    build_n_step(check(compose.plain(compose.compose_config("train", overrides[1:]))))  # n_step=1 allows a schedule
