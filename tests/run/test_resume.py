"""A run that is stopped anywhere and resumed ends in the same bytes; overrides that would change it are refused."""

import random
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
import torch
from agents import TINY
from kills import Killed
from omegaconf import OmegaConf
from runs import RUN, assert_same, die_in, go_on, run_until
from same_run import timeless

import train
from run import resume
from run.workspace import Workspace, read_finished
from utils import UserError

PENDULUM = ("env=Pendulum-v1", "+env_kwargs.max_episode_steps=50")
FLAT = ("agent.critic.hidden_depth=1", "agent.actor.hidden_depth=1")  # deeper networks take longer to record
# Agents that differ in what has a state; tests/agent/test_pairs.py resumes every agent with every part.
CASES = {
    "sac": ("env=ProbeTimeLimit-v0", "execution=auto", "log_save_tb=true", "log_frequency=50"),
    "crossq": (*PENDULUM, "execution=auto", "agent=crossq", "agent.critic.network.norm.renorm_after=50", *FLAT),
    "droq": (
        *PENDULUM,
        "execution=auto",
        "agent=droq",
        "updates_per_step=1",
        "agent.actor_update_frequency=3",
        "agent.num_target_critics=1",
        *FLAT,
    ),
    "self_predictive": (*PENDULUM, "agent=self_predictive", "agent.target_update_frequency=7", "n_step=3"),
    "sac_discrete": ("env=probes:ProbeChoices-v0", "execution=auto", "agent=sac_discrete", "num_envs=2", "n_step=3"),
    "ring": (*PENDULUM, "replay_buffer_capacity=50", "sample_with_replacement=false", "update_every=7"),
    "fraction": ("env=ProbeTimeLimit-v0", "updates_per_step=0.3", "agent.actor_update_frequency=3"),
    "held": ("env=cartpole_balance", "+env_kwargs.time_limit=1", "action_repeat=3", "num_eval_episodes=1"),
    "four": ("env=probes:ProbeDrawn-v0", "num_envs=4", "num_eval_episodes=3"),
    "agent_first": (*PENDULUM, "seed_policy=agent", "agent/temperature=exponential"),
    "drq": (
        *("env=ProbeImages-v0", "agent=drq", *TINY, "execution=auto", "replay_buffer_capacity=60", *FLAT),
        *("frame_stack=2", "action_repeat=1", "log_save_tb=true", "log_frequency=50", "replay_storage=device"),
    ),
    "bursts": (*PENDULUM, "min_buffer_size=55", "update_every=20"),
}


# Slow, and other cases cover their parts.
QUICK = {"sac", "sac_discrete", "ring", "four"}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in QUICK else pytest.mark.thorough) for case in CASES]
)
def test_killed_twice_it_ends_in_the_same_bytes(tmp_path: Path, case: str) -> None:
    run = (*RUN, *CASES[case])
    probes.train(tmp_path / "straight", *run)
    run_until(tmp_path / "killed", 81, *run)  # eval.csv is newer than step 60's checkpoint: resuming removes it
    cfg = resume.load_settings(tmp_path / "killed", ["probes"])
    again = Workspace(cfg, tmp_path / "killed", resume=True)
    assert 50 <= again.step < 70
    die_in(again, 131)
    go_on(tmp_path / "killed")
    assert_same(tmp_path / "killed", tmp_path / "straight")


def test_the_command_line_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = (*RUN, "env=probes:ProbeDrawn-v0")
    probes.train(tmp_path / "straight", *run)
    run_until(tmp_path / "killed", 100, *run)
    monkeypatch.setattr(sys, "argv", ["train.py", f"resume={tmp_path / 'killed'}", "trust=probes"])
    assert train.main() == 0
    assert_same(tmp_path / "killed", tmp_path / "straight")


def test_every_generator_goes_on(tmp_path: Path) -> None:
    def draw() -> tuple[float, ...]:
        return random.random(), np.random.random(), np.random.normal(), torch.rand(1).item()

    first = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=30")
    draw()
    first.run()
    expected = draw()
    Workspace(resume.load_settings(tmp_path), tmp_path, resume=True).close()
    assert draw() == expected


def test_a_kill_during_an_evaluation_loses_none(tmp_path: Path) -> None:
    run = ("env=ProbeTimeLimit-v0", *RUN, "eval_frequency=60")
    probes.train(tmp_path / "straight", *run)
    dying = probes.workspace(tmp_path / "killed", *run)

    def die(*_: Any) -> None:
        raise Killed

    dying.evaluations.evaluator.evaluate = die  # type: ignore[method-assign]
    with pytest.raises(Killed):
        dying.run()
    go_on(tmp_path / "killed")
    assert_same(tmp_path / "killed", tmp_path / "straight")


def test_a_column_that_came_after_the_checkpoint_goes_again(tmp_path: Path) -> None:
    """The CSV was widened, and so rewritten, after the checkpoint had noted its length."""
    run = ("env=ProbeTimeLimit-v0", *RUN, "num_seed_steps=32", "agent=sac_v", "agent.value.hidden_dim=16")
    probes.train(tmp_path / "straight", *run)
    run_until(tmp_path / "killed", 41, *run)  # updates, and their columns, began after the checkpoint of step 30
    assert len(timeless(tmp_path / "killed/train.csv")[0]) == len(timeless(tmp_path / "straight/train.csv")[0])
    go_on(tmp_path / "killed")
    assert_same(tmp_path / "killed", tmp_path / "straight")


def test_a_finished_run_is_extended_and_its_end_cut(tmp_path: Path) -> None:
    run = ("env=ProbeTimeLimit-v0", *RUN)
    probes.train(tmp_path / "long", *run, "replay_buffer_capacity=100")
    probes.train(tmp_path / "short", *run, "num_train_steps=102", "replay_buffer_capacity=100")
    finished = read_finished(tmp_path / "short")
    assert finished == {"step": 102, "last_return": 5.0, "pruned": False}
    extended = go_on(tmp_path / "short", "num_train_steps=160")
    assert extended.cfg.replay_buffer_capacity == 100
    assert_same(tmp_path / "short", tmp_path / "long")
    assert resume.load_settings(tmp_path / "short").num_train_steps == 160  # the new length is saved


def test_a_finished_run_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert resume.continue_run(tmp_path, [], []) == 5.0
    assert "finished at step 160" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_capacity_stays_where_it_followed_the_steps(tmp_path: Path) -> None:
    run_until(tmp_path, 100, "env=ProbeTimeLimit-v0", *RUN)
    goes_on = resume.load_settings(tmp_path, (), ["num_train_steps=1e4", "device=auto"])
    assert (goes_on.num_train_steps, goes_on.replay_buffer_capacity) == (10_000, 160)
    assert goes_on.device == "cpu", "a choice that was made stays"


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("seed=2", "seed=2 would change the run, which has seed=1"),
        ("agent=sac_v", "agent.*would change the run"),
        ("agent.discount=0.5", "agent.discount=0.5 would change the run, which has agent.discount=0.99"),
        ("replay_buffer_capacity=77", "replay_buffer_capacity=77 would change"),
    ],
)
def test_what_would_change_the_run_is_refused_by_name(small_run: Path, override: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        resume.load_settings(small_run, (), [override])


def test_another_device_chooses_for_itself(tmp_path: Path) -> None:
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40")
    path = tmp_path / "config.yaml"
    saved = OmegaConf.load(path)
    gpu = {"device": "cuda", "precision": "tf32", "execution": "captured", "replay_storage": "device"}
    OmegaConf.save(OmegaConf.merge(saved, gpu), path)
    cfg = resume.load_settings(tmp_path, (), ["device=cpu"])
    assert (cfg.device, cfg.precision, cfg.execution, cfg.replay_storage) == ("cpu", "auto", "auto", "auto")


def test_a_run_whose_last_step_went_beyond_its_end_can_be_finished(tmp_path: Path) -> None:
    """It was killed in its last evaluation."""
    run = ("env=ProbeTimeLimit-v0", *RUN, "num_envs=3", "num_train_steps=100")
    whole = probes.train(tmp_path / "whole", *run).work_dir
    killed = shutil.copytree(whole, tmp_path / "killed")
    (killed / "finished.json").unlink()
    assert go_on(killed).step == 102
    assert_same(killed, whole)


def test_a_folder_is_for_one_run_and_one_process(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run's folder"):
        resume.load_settings(tmp_path)
    run = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=20")
    with pytest.raises(UserError, match="another process is working in this folder"):
        probes.workspace(tmp_path)
    run.run()
    with pytest.raises(UserError, match="a run is there already"):
        probes.workspace(tmp_path)
