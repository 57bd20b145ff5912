"""Runs that begin with preloaded data: their buffers, batches and normalisers, and resuming them."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import probes
import pytest
import torch
from minari.data_collector import EpisodeBuffer
from runs import RUN, assert_same, go_on, quoted, run_until

import evaluate
from replay.device import STORAGES
from replay.mixed import MixedBatches
from replay_buffer import Batch, ReplayBuffer
from utils import UserError

FREE = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
TO_ONE = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
LENGTHS = {50: 4, 51: 7, 52: 1, 53: 6}  # of episodes, of which 50 and 53 terminate


def make_episode(number: int, length: int) -> EpisodeBuffer:
    """Observations are the episode's number and its step, as in ProbeNumbered; actions and rewards follow from both."""
    steps = np.arange(length)
    ends, terminates = steps == length - 1, number in (50, 53)
    return EpisodeBuffer(
        observations=np.stack([np.full(length + 1, number), np.arange(length + 1)], axis=1).astype(np.float32),
        actions=((number + steps) % 5 / 5).astype(np.float32)[:, None],
        rewards=100.0 * number + steps,
        terminations=ends & terminates,
        truncations=ends & (not terminates),
    )


EPISODES = [make_episode(number, length) for number, length in LENGTHS.items()]


def make(name: str, episodes: list[EpisodeBuffer], obs: gym.Space, action: gym.Space = TO_ONE, **about: Any) -> None:
    """Writes a data set below MINARI_DATASETS_PATH."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data_set = minari.create_dataset_from_buffers(name, episodes, observation_space=obs, action_space=action)
    data_set.storage.update_metadata(about)


ID, GAMMA = "made/known-v0", 0.99
ENV = "env=probes:ProbeNumbered-v0"  # observes the episode's number, below 50 here, and the step
OLD = (ENV, *RUN, "num_train_steps=80", "num_eval_episodes=1")  # the run whose data another begins with
HALF = (ENV, f"preload={ID}", "preload_share=0.5")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    make(ID, EPISODES, FREE)
    return tmp_path / "root"


def opened(folder: Path, *overrides: str) -> Any:
    """Returns a run that has been built, with its preloaded rows, and closed."""
    run = probes.workspace(folder, *overrides)
    run.close()
    return run


def assert_known(batch: Batch, n: int) -> None:
    """Compares rows of the made data set with the definition of n-step rows."""
    index = 0
    for number, length in LENGTHS.items():
        for t in range(length):
            steps = min(n, length - t)
            row = [column[index] for column in batch]
            index += 1
            assert row[0].tolist() == [number, t] and row[3].tolist() == [number, t + steps]
            assert row[1].item() == pytest.approx((number + t) % 5 / 5)
            reward = sum(GAMMA**k * (100.0 * number + t + k) for k in range(steps))
            assert row[2].item() == pytest.approx(reward, rel=1e-6)
            terminated = t + steps == length and number in (50, 53)
            assert row[4].item() == pytest.approx(0.0 if terminated else GAMMA ** (steps - 1))
    assert index == len(batch.obs) == 18


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("share", [0, 0.5])
def test_rows_keep_terminations_and_limits_and_stay_within_episodes(tmp_path: Path, n: int, share: float) -> None:
    folder = quoted(tmp_path / "root/made/known-v0") if share else ID  # by its folder, or by its id
    run = opened(tmp_path / "run", ENV, f"preload={folder}", f"preload_share={share}", f"n_step={n}")
    buffer = run.data.buffer if share else run.replay_buffer
    assert (run.replay_buffer.num_added == 0) == bool(share)
    assert_known(buffer.stored(0, 18), n)


def test_observations_and_actions_of_any_space_are_as_the_environment_gives_them(tmp_path: Path) -> None:
    """A dictionary with a choice is flattened; discrete actions count from 0."""
    obs_space = gym.spaces.Dict({"b": gym.spaces.Discrete(2, start=3), "a": gym.spaces.Box(-9, 9, (1, 1))})
    observations = {"a": np.array([[[1.0]], [[2.0]], [[3.0]]], np.float32), "b": np.array([4, 3, 4])}
    flags = np.array([False, True])
    episode = EpisodeBuffer(None, None, None, observations, np.array([1, 0]), np.ones(2), flags, flags & False)
    make("made/choices-v0", [episode], obs_space, gym.spaces.Discrete(2))
    named = "env=CartPole-v1", "agent=sac_discrete", "preload=made/choices-v0"
    with pytest.raises(ValueError, match=r"cannot reshape array of size 3 into shape \(1,4\)"):
        opened(tmp_path / "other", *named)
    obs_space["c"], observations["c"] = gym.spaces.Box(-9, 9, (1,)), np.zeros((3, 1), np.float32)
    make("made/choices-v1", [episode], obs_space, gym.spaces.Discrete(2))
    batch = opened(tmp_path / "run", *named[:2], "preload=made/choices-v1").replay_buffer.stored(0, 2)
    assert batch.obs.tolist() == [[1, 0, 1, 0], [2, 1, 0, 0]] and batch.action.tolist() == [[1], [0]]


def test_normalisers_see_every_transition_once(tmp_path: Path) -> None:
    followers = ("agent/observation_normaliser=running", "agent/reward_normaliser=returns")
    run = probes.workspace(tmp_path / "run", *HALF, *followers, "num_envs=3", "num_train_steps=60", "num_seed_steps=30")
    agent: Any = run.agent
    everything = np.concatenate([[*np.asarray(e.observations)[:-1], *np.asarray(e.observations)[1:]] for e in EPISODES])
    assert agent.observation_normaliser.count == len(everything) == 36
    np.testing.assert_allclose(agent.observation_normaliser.mean, everything.mean(0))
    largest = running = 0.0
    for episode in EPISODES:
        for left, reward in zip(range(len(episode.rewards))[::-1], episode.rewards, strict=True):
            running = reward + (GAMMA * running if left else 0.0)  # the last reward counts alone
            largest = max(largest, abs(running))
    assert agent.reward_normaliser.state_dict()["largest"] == pytest.approx(largest)
    run.run()  # three environments, after the data set's one
    assert agent.observation_normaliser.count == 36 + 2 * run.replay_buffer.num_added


@pytest.mark.parametrize("storage", STORAGES)
def test_a_share_of_every_batch_is_preloaded_for_good(storage: str) -> None:
    def filled(first: int, count: int, capacity: int) -> ReplayBuffer:
        buffer = STORAGES[storage]((1,), (1,), capacity, torch.device("cpu"))
        for i in range(first, first + count):
            buffer.add(np.array([i]), np.zeros(1), i, np.array([i]), False, False)
        return buffer

    collected, preloaded = filled(0, 90, 30), filled(1000, 9, 9)
    for share, count in ((0.5, 5), (0.25, 2), (1.0, 10), (0.01, 0)):
        batches = MixedBatches(collected, preloaded, share)
        for _ in range(20):
            rewards = batches.sample(10).reward
            batches.stage(10)
            again = batches.staged()
            assert rewards.shape == again.reward.shape == (10, 1)
            assert int((rewards >= 1000).sum()) == int((again.reward >= 1000).sum()) == count
            assert set(rewards[rewards < 1000].tolist()) <= set(range(60, 90))
    assert len(batches.generators) == (2 if storage == "device" else 0)


DRAWN = ("env=probes:ProbeDrawn-v0", f"preload={ID}")  # depends on the seed and the actions alone


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(("n_step=3", "agent/observation_normaliser=running", "num_envs=2"), marks=pytest.mark.thorough),
        ("preload_share=0.5", "execution=auto", "sample_with_replacement=false"),
    ],
)
def test_killed_it_ends_in_the_same_bytes_without_its_data(
    tmp_path: Path, overrides: tuple[str, ...], root: Path
) -> None:
    run = (*RUN, *DRAWN, *overrides)
    probes.train(tmp_path / "straight", *run)
    run_until(tmp_path / "run", 110, *run)
    shutil.rmtree(root)
    go_on(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_what_was_recorded_is_what_is_preloaded(tmp_path: Path) -> None:
    probes.train(tmp_path / "old", "env=ProbeTuples-v0", *RUN, "num_train_steps=40", "action_repeat=2")
    returns = evaluate.evaluate(tmp_path / "old", 12, device="cpu", dataset_id="tuples/some-v0")
    data = minari.load_dataset("tuples/some-v0")
    about = data.storage.metadata
    assert (data.total_episodes, about["env"], about["action_repeat"]) == (12, "ProbeTuples-v0", 2)
    np.testing.assert_array_equal(data.action_space.low, [[-2], [0]])  # the environment's own bounds
    run = opened(tmp_path / "new", "env=ProbeTuples-v0", "preload=tuples/some-v0", "action_repeat=2")
    batch = run.replay_buffer.stored(0, 24)  # two decisions in each episode of three steps
    assert batch.reward.sum().item() == sum(returns) == 36 and batch.discount[:, 0].tolist() == [1.0, 0.0] * 12
    played: Any = evaluate.load_run_policy(tmp_path / "old", "cpu").actor
    np.testing.assert_allclose(batch.action, played.act(batch.obs.numpy()), atol=1e-6)


def test_an_older_run_gives_its_replay_buffer(tmp_path: Path) -> None:
    old = probes.train(tmp_path / "old", *OLD, "num_envs=3", "replay_buffer_capacity=200")
    count = old.replay_buffer.num_added
    named = ENV, f"preload={quoted(tmp_path / 'old')}", "replay_buffer_capacity=900"
    kept = old.replay_buffer.stored(0, count)
    taken = opened(tmp_path / "new", *named).replay_buffer.stored(0, count)
    order = [np.lexsort(np.concatenate([b.obs, b.reward, b.action], axis=1).T) for b in (kept, taken)]
    for ours, theirs in zip(kept, taken, strict=True):
        np.testing.assert_array_equal(ours.numpy()[order[0]], theirs.numpy()[order[1]])
    batch = opened(tmp_path / "three", *named, "n_step=3", "preload_share=1").data.buffer.stored(0, count)
    steps = batch.next_obs[:, 1] - batch.obs[:, 1]
    assert set(steps.tolist()) <= {1.0, 2.0, 3.0} and (steps == 3).sum() > len(steps) / 3
    assert torch.equal(batch.obs[:, 0], batch.next_obs[:, 0])  # the episode's number: no row crosses episodes


def test_of_an_older_run_rows_of_single_steps_are_needed(tmp_path: Path) -> None:
    probes.train(tmp_path / "old", *OLD, "n_step=3")
    probes.train(tmp_path / "without", *OLD, "save_replay_buffer=false")
    for name, message in (("old", "it has n_step=3; only"), ("without", "its newest checkpoint has no rows")):
        with pytest.raises(UserError, match=message):
            opened(tmp_path / "new", ENV, f"preload={quoted(tmp_path / name)}")


WIDE = {"action": gym.spaces.Box(-3, 3, (1,), np.float32)}


@pytest.mark.parametrize(
    ("made", "overrides", "message"),
    [
        ({}, ("preload=no/such-v0",), r"preload=no/such-v0: .*not found locally"),
        (WIDE, (), r"its actions are Box\(-3.0, 3.0, \(1,\), float32\), those of the run's environment Box\(-1.0, 1.0"),
        ({"action": gym.spaces.Discrete(3, start=-1)}, (), r"its actions are Discrete\(3, start=-1\)"),
        ({"action_repeat": 2}, (), "it has action_repeat=2, and this run action_repeat=1"),
        ({"obs_groups": "{'actor': ['b']}"}, (), "it has obs_groups={'actor': .*, and this run obs_groups=None"),
        ({}, ("replay_buffer_capacity=17",), "replay_buffer_capacity=17: must be at least 18, which are preloaded"),
        ({}, ("preload_share=0.5", "replay_buffer=lap"), "must be 0 with a replay buffer that draws by priority"),
        ({}, ("frame_stack=2",), "only vectors can be preloaded"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, made: dict[str, Any], overrides: tuple[str, ...], message: str
) -> None:
    make("made/other-v0", EPISODES, FREE, **made)
    with pytest.raises(UserError, match=message):
        opened(tmp_path / "run", ENV, "preload=made/other-v0", *overrides)


@pytest.mark.parametrize("share", [0.5, 0])
def test_rows_that_were_not_saved_are_read_again(
    tmp_path: Path, share: float, capsys: pytest.CaptureFixture[str]
) -> None:
    run = (*RUN, ENV, f"preload={ID}", f"preload_share={share}", "save_replay_buffer=false")
    run_until(tmp_path / "run", 100, *run, "agent/observation_normaliser=running")
    capsys.readouterr()
    continued = go_on(tmp_path / "run")
    assert "no updates before 40 new transitions" in capsys.readouterr().out
    buffer = continued.data.buffer if share else continued.replay_buffer
    assert_known(buffer.stored(0, 18), 1)  # type: ignore[union-attr]
    assert continued.agent.observation_normaliser.count == 36 + 2 * 160  # each observed once
