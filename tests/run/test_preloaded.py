"""Runs that begin with preloaded data: their buffers, batches and normalisers, and resuming them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import composed
import gymnasium as gym
import numpy as np
import probes
import pytest
import torch
from made_datasets import EPISODES, LENGTHS, make
from runs import RUN, assert_same, die_in, go_on, quoted, run_until

import evaluate
from launch.preflight import check_runs
from replay.device import STORAGES
from replay.minari_files import MinariFiles
from replay.mixed import MixedBatches
from replay_buffer import Batch, ReplayBuffer
from run.saving import checkpoint, resume
from train import Workspace
from utils import UserError

ID, GAMMA = "made/known-v0", 0.99
ENV = "env=probes:ProbeNumbered-v0"  # observes the episode's number, below 50 here, and the step
OLD = (ENV, *RUN, "num_train_steps=80", "num_eval_episodes=1")  # the run whose data another begins with
HALF = (ENV, f"preload={ID}", "preload_share=0.5")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    make()
    return tmp_path / "root"


def stored(buffer: ReplayBuffer, count: int) -> Batch:
    return buffer.stored(0, count)


def assert_known(batch: Batch, n: int) -> None:
    """Compares rows of the made data set with the definition of n-step rows."""
    index = 0
    for number, length in LENGTHS.items():
        terminated = number in (50, 53)
        for t in range(length):
            steps = min(n, length - t)
            ends = t + steps == length
            row = [column[index] for column in batch]
            index += 1
            assert row[0].tolist() == [number, t] and row[3].tolist() == [number, t + steps]
            assert row[1].item() == pytest.approx((number + t) % 5 / 5)
            reward = sum(GAMMA**k * (100.0 * number + t + k) for k in range(steps))
            assert row[2].item() == pytest.approx(reward, rel=1e-6)
            assert row[4].item() == pytest.approx(0.0 if ends and terminated else GAMMA ** (steps - 1))
    assert index == len(batch.obs) == 18


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("share", [0, 0.5])
def test_rows_keep_terminations_and_limits_and_stay_within_episodes(tmp_path: Path, n: int, share: float) -> None:
    run = probes.workspace(tmp_path / "run", ENV, f"preload={ID}", f"preload_share={share}", f"n_step={n}")
    run.close()
    buffer = run.preloaded.buffer if share else run.replay_buffer
    assert buffer is not None and buffer.num_added == 18
    assert (run.replay_buffer.num_added == 0) == bool(share)
    assert_known(stored(buffer, 18), n)


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
    run.close()
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
RUNS: dict[str, tuple[str, ...]] = {
    "among the others": (*DRAWN, "n_step=3", "agent/observation_normaliser=running", "num_envs=2"),
    "half": (*DRAWN, "preload_share=0.5", "agent/reward_normaliser=returns", "sample_with_replacement=false"),
    "offline first": (*DRAWN, "preload_share=0.5", "offline_updates=70"),
    "recorded": (*DRAWN, "preload_share=0.5", "offline_updates=70", "execution=auto"),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.thorough) if case in ("half", "recorded") else case for case in RUNS]
)
def test_killed_twice_it_ends_in_the_same_bytes_without_its_data(tmp_path: Path, case: str, root: Path) -> None:
    run = (*RUN, *RUNS[case])
    probes.train(tmp_path / "straight", *run)
    run_until(tmp_path / "run", 75, *run)
    shutil.rmtree(root)
    again = Workspace(resume.continuation(tmp_path / "run", [], trusted=("probes",)).cfg, tmp_path / "run", resume=True)
    die_in(again, 110)
    go_on(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_killed_offline_it_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("run.loop.OFFLINE_ROW_STEPS", 40)
    run = (*RUN, *HALF, "offline_updates=160")
    straight = probes.train(tmp_path / "straight", *run)
    assert straight.replay_buffer.num_added == 0 and straight.agent.num_updates == 160
    steps = [line.split(",")[1] for line in (tmp_path / "straight/eval.csv").read_text().splitlines()]
    assert steps == ["step", "70", "140", "160"]  # offline updates count as steps
    dying = probes.workspace(tmp_path / "run", *run)
    update = dying.agent.update

    def die(*arguments: Any) -> None:
        if dying.step == 100:
            raise KeyboardInterrupt
        update(*arguments)

    dying.agent.update = die  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        dying.run()
    dying.close()
    assert go_on(tmp_path / "run").agent.num_updates == 160
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_what_was_recorded_is_what_is_preloaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes.train(tmp_path / "old", "env=ProbeTuples-v0", *RUN, "num_train_steps=40", "action_repeat=2")
    returns = evaluate.evaluate(tmp_path / "old", 12, device="cpu", dataset_id="tuples/some-v0")
    files = MinariFiles(tmp_path / "root/tuples/some-v0/data", "preload=it")
    assert (files.num_episodes, files.env, files.action_repeat) == (12, "ProbeTuples-v0", 2)
    np.testing.assert_array_equal(files.actions.low, [[-2], [0]])  # the environment's own bounds
    run = probes.workspace(tmp_path / "new", "env=ProbeTuples-v0", "preload=tuples/some-v0", "action_repeat=2")
    run.close()
    batch = stored(run.replay_buffer, 24)  # two decisions in each episode of three steps
    assert batch.reward.sum().item() == sum(returns) == 36 and batch.discount[:, 0].tolist() == [1.0, 0.0] * 12
    played: Any = evaluate.load_run_policy(tmp_path / "old", "cpu").actor
    np.testing.assert_allclose(batch.action, played.act(batch.obs.numpy()), atol=1e-6)


def test_a_data_set_says_how_its_observations_were_grouped(tmp_path: Path, root: Path) -> None:
    groups = "obs_groups={actor: [place], critic: [place, goal]}"
    probes.train(tmp_path / "old", "env=probes:ProbePrivileged-v0", *RUN, "num_train_steps=40", groups)
    evaluate.evaluate(tmp_path / "old", 1, device="cpu", trusted=("probes",), dataset_id="probe/groups-v0")
    files = MinariFiles(root / "probe/groups-v0/data", "it")
    assert files.obs_groups == "{'actor': ['place'], 'critic': ['place', 'goal']}"


def test_an_older_run_gives_its_replay_buffer(tmp_path: Path) -> None:
    old = probes.train(tmp_path / "old", *OLD, "num_envs=3", "replay_buffer_capacity=200")
    assert len(old.replay_buffer) == old.replay_buffer.num_added
    kept = stored(old.replay_buffer, len(old.replay_buffer))
    new = probes.workspace(tmp_path / "new", ENV, f"preload={quoted(tmp_path / 'old')}", "replay_buffer_capacity=900")
    new.close()
    taken = stored(new.replay_buffer, len(kept.obs))
    order = [np.lexsort(np.concatenate([b.obs, b.reward, b.action], axis=1).T) for b in (kept, taken)]
    for ours, theirs in zip(kept, taken, strict=True):
        np.testing.assert_array_equal(ours.numpy()[order[0]], theirs.numpy()[order[1]])
    three = probes.workspace(
        tmp_path / "three", ENV, f"preload={quoted(tmp_path / 'old')}", "n_step=3", "preload_share=1"
    )
    three.close()
    batch = stored(three.preloaded.buffer, len(kept.obs))  # type: ignore[arg-type]
    steps = batch.next_obs[:, 1] - batch.obs[:, 1]
    assert set(steps.tolist()) <= {1.0, 2.0, 3.0} and (steps == 3).sum() > len(steps) / 3
    assert torch.equal(batch.obs[:, 0], batch.next_obs[:, 0])  # the episode's number: no row crosses episodes


def test_rows_of_several_steps_stay_what_they_are(tmp_path: Path) -> None:
    old = probes.train(tmp_path / "old", *OLD, "n_step=3")
    same = (ENV, f"preload={quoted(tmp_path / 'old')}", "n_step=3", "agent/observation_normaliser=running")
    new = probes.workspace(tmp_path / "new", *same)
    new.close()
    count = old.replay_buffer.num_added
    for ours, theirs in zip(stored(old.replay_buffer, count), stored(new.replay_buffer, count), strict=True):
        assert torch.equal(ours, theirs)
    assert new.agent.observation_normaliser.count == 2 * count
    for other, said in (("n_step=2", "n_step=3"), ("agent.discount=0.9", "discount=0.99")):
        with pytest.raises(UserError, match=f"its rows are of {said}, which the run would need: "):
            probes.workspace(tmp_path / other, *same, other)
    config = tmp_path / "old/config.yaml"
    text = config.read_text()
    for key, value in (("action_bounds", "5.0"), ("obs_groups", "{actor: [a], critic: [b]}")):  # they change the rows
        config.write_text(text.replace(f"{key}: null", f"{key}: {value}", 1))
        with pytest.raises(UserError, match=rf"its rows are of {key}=.*, and this run has {key}=None"):
            probes.workspace(tmp_path / key, *same)
    config.write_text(text)
    with pytest.raises(UserError, match="a reward normaliser"):
        probes.workspace(tmp_path / "scaled", *same, "agent/reward_normaliser=returns")


MISTAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "not there": ((ENV, "preload=no/such-v0"), r"preload=no/such-v0: not there; data sets in .*: made/known-v0$"),
    "an empty folder": ((ENV, "preload=EMPTY"), r"no run's folder \(config.yaml\) and no data set"),
    "other observations": (("env=Pendulum-v1", f"preload={ID}"), "its observations have 2 numbers, env=Pendulum-v1 3"),
    "other actions": (
        ("env=MountainCarContinuous-v0", "preload=made/wide-v0"),
        r"within \[-3.0\] to \[3.0\] \(Box\), those of",
    ),
    "held longer": (
        (ENV, f"preload={ID}", "action_repeat=2"),
        "its actions were held for 1 steps, and action_repeat=2",
    ),
    "no room": ((ENV, f"preload={ID}", "replay_buffer_capacity=17"), "replay_buffer_capacity=17: 18 transitions are"),
    "a share of nothing": ((ENV, "preload_share=0.5"), "preload_share=0.5: nothing is preloaded"),
    "a share beyond one": ((ENV, f"preload={ID}", "preload_share=1.5"), "preload_share=1.5: it should be less than or"),
    "a share that rounds to nothing": (
        (ENV, f"preload={ID}", "preload_share=0.001", "agent.batch_size=10"),
        r"preload_share=0\.001: of agent\.batch_size=10 rows that is 0; choose 0\.1 to 0\.9, or 1",
    ),
    "a share that rounds to all": (
        (ENV, f"preload={ID}", "preload_share=0.999", "agent.batch_size=10"),
        r"preload_share=0\.999: of agent\.batch_size=10 rows that is 10; choose",
    ),
    "updates on nothing": ((ENV, "offline_updates=5"), "offline_updates=5: nothing is preloaded"),
    "more than all": (
        (*HALF, "offline_updates=601"),
        "offline_updates=601: each counts as a step, and num_train_steps",
    ),
    "too few to draw": (
        (*HALF, "sample_with_replacement=false", "agent.batch_size=40"),
        "preload: 18 transitions, of which a batch without replacement takes 20",
    ),
    "too few to draw offline": (
        (ENV, f"preload={ID}", "offline_updates=5", "sample_with_replacement=false", "agent.batch_size=40"),
        "preload: 18 transitions, of which a batch without replacement takes 40",
    ),
    "an empty name": ((ENV, "preload=['']"), r"preload=\[''\]: a data set, or the folder of a run, goes in place of"),
    "of groups": ((ENV, "preload=made/groups-v0"), "its observations are of obs_groups={'actor': .*, and this run has"),
    "no name": ((ENV, f"preload={'x' * 300}"), "preload=x*: .*(File name too long|not there)"),
    "no text": ((ENV, "preload={a: 1}"), "preload="),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_before_anything_is_made(name: str, tmp_path: Path, root: Path) -> None:
    (tmp_path / "empty").mkdir()
    make("made/wide-v0", action_space=gym.spaces.Box(-3, 3, (1,), np.float32)) if "actions" in name else None
    make("made/groups-v0", obs_groups="{'actor': ['b'], 'critic': ['a']}") if "groups" in name else None
    overrides, message = MISTAKES[name]
    overrides = tuple(text.replace("EMPTY", quoted(tmp_path / "empty")) for text in overrides)
    with pytest.raises(UserError, match=message) as refused:
        check_runs([composed.settings(*probes.SMALL, *overrides)])
    assert "\n" not in str(refused.value)


def test_the_command_says_it_in_one_line(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("env=Pendulum-v1", f"preload=[{ID}]", "hydra.run.dir=run", *probes.SMALL) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"train.py: preload={ID}: its observations") and said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_an_older_run_that_is_damaged_or_has_no_rows_is_one_line(tmp_path: Path) -> None:
    probes.train(tmp_path / "old", *OLD, "save_replay_buffer=false")
    with pytest.raises(UserError, match="its newest checkpoint has no replay buffer in rows"):
        probes.workspace(tmp_path / "new", ENV, f"preload={quoted(tmp_path / 'old')}")
    for text in ("agent: {}\n", "agent: 3\nn_step: 1\naction_repeat: 1\n", "agent: {}\nn_step: x\naction_repeat: 1\n"):
        (tmp_path / "old/config.yaml").write_text(text)
        with pytest.raises(UserError, match="not a run's configuration"):
            probes.workspace(tmp_path / "newer", ENV, f"preload={quoted(tmp_path / 'old')}")
    (tmp_path / "old/config.yaml").unlink()
    (tmp_path / "old/config.yaml").symlink_to(tmp_path / "root/made/known-v0/data/metadata.json")
    with pytest.raises(UserError, match=r"config\.yaml: a link; in a run's folder none is followed"):
        probes.workspace(tmp_path / "newer", ENV, f"preload={quoted(tmp_path / 'old')}")
    with pytest.raises(UserError, match=r"preload=.*: .*a checkpoint of obs_dim=2, not of obs_dim=3"):
        probes.train(tmp_path / "whole", *OLD)
        probes.workspace(tmp_path / "newest", "env=Pendulum-v1", f"preload={quoted(tmp_path / 'whole')}")


@pytest.mark.parametrize("share", ["preload_share=0.5", "preload_share=0"])
def test_rows_that_were_not_saved_are_read_again(
    tmp_path: Path, share: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = (*RUN, ENV, f"preload={ID}", share, "save_replay_buffer=false", "agent/observation_normaliser=running")
    run_until(tmp_path / "run", 100, *run)
    capsys.readouterr()
    with pytest.raises(UserError, match="would be read outside of this folder; if they are yours, add"):
        go_on(tmp_path / "run")
    continued = go_on(tmp_path / "run", f"preload={ID}")
    assert "no updates before 40 new transitions" in capsys.readouterr().out
    buffer = continued.preloaded.buffer if "5" in share else continued.replay_buffer
    assert_known(buffer.stored(0, 18), 1)  # type: ignore[union-attr]
    assert continued.agent.observation_normaliser.count == 36 + 2 * 160  # each observed once


def test_damaged_preloaded_rows_are_found_and_can_be_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_until(tmp_path / "run", 100, *RUN, *HALF)
    (rows,) = (tmp_path / "run/checkpoints/preloaded").glob("*.rows")
    before = rows.read_bytes()
    rows.write_bytes(before[:-4] + b"\1\1\1\1")
    with pytest.raises(UserError, match="resume_without=replay_buffer goes on from step_90 without"):
        go_on(tmp_path / "run")
    assert f"preloaded/{rows.name} has changed" in capsys.readouterr().out
    continued = go_on(tmp_path / "run", f"preload={ID}", without=("replay_buffer",))
    assert_known(continued.preloaded.buffer.stored(0, 18), 1)  # type: ignore[union-attr]
    found = checkpoint.newest_intact(tmp_path / "run", "agent", "run", buffer=True)[0]
    assert found.step == 160 and found.preloaded[-1].stop == 18


def test_rows_of_the_buffer_are_not_left_out_with_damaged_preloaded_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_until(tmp_path, 100, *RUN, *HALF)
    (rows,) = (tmp_path / "checkpoints/preloaded").glob("*.rows")
    rows.write_bytes(rows.read_bytes()[:-4] + b"\1\1\1\1")
    continued = go_on(tmp_path, f"preload={ID}", without=("replay_buffer",))
    assert "going on without the preloaded rows, which are read again" in capsys.readouterr().out
    assert continued.replay_buffer.num_added == 160 and not (tmp_path / "checkpoints/buffer.lost").exists()


def test_updates_wait_no_longer_the_more_often_a_run_is_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = (ENV, *RUN, f"preload={ID}", "replay_buffer_capacity=400", "save_replay_buffer=false")
    run_until(tmp_path, 100, *run)
    for num_train_steps in (190, 220):
        go_on(tmp_path, f"preload={ID}", f"num_train_steps={num_train_steps}")
        assert "no updates before 40 new transitions" in capsys.readouterr().out


def test_the_key_is_compared_by_what_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probes.train(tmp_path / "old", *OLD)
    monkeypatch.chdir(tmp_path)
    run_until(tmp_path / "run", 100, *RUN, ENV, "preload=[old,made/known-v0]", "replay_buffer_capacity=400")
    same = resume.continuation(tmp_path / "run", ["preload=[old,made/known-v0]"], trusted=("probes",)).cfg
    assert same.preload == [str(tmp_path / "old"), ID]
    with pytest.raises(UserError, match=r"preload=\['made/known-v0'\] would change the run"):
        resume.continuation(tmp_path / "run", ["preload=made/known-v0"], trusted=("probes",))


def test_a_missing_package_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"h5py is missing; pip install -e '\.\[data\]'"):
        probes.workspace(tmp_path / "run", *HALF)
