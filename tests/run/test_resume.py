"""A run that is stopped anywhere and resumed ends in the same bytes; overrides that would change it are refused."""

import os
import random
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
import torch
from agents import TINY
from omegaconf import OmegaConf
from runs import RUN, Killed, assert_same, die_in, go_on, run_until
from same_run import timeless

import train
from launch import argv
from run.saving import checkpoint, resume
from run.saving import folder as run_folder
from train import Workspace
from utils import UserError

PENDULUM = ("env=Pendulum-v1", "env_kwargs.max_episode_steps=50")
FLAT = ("agent.critic.hidden_depth=1", "agent.actor.hidden_depth=1")  # deeper networks take longer to record
CASES = {
    "sac": ("env=ProbeTimeLimit-v0", "execution=auto", "log_save_tb=true", "log_frequency=50", "log_every_steps=20"),
    "sac_v": (*PENDULUM, "agent=sac_v", "agent.value.hidden_dim=16"),
    "sac_2018": (*PENDULUM, "agent=sac_2018", "agent.value.hidden_dim=16"),
    "crossq": (*PENDULUM, "execution=auto", "agent=crossq", "agent.critic.network.norm.renorm_after=50", *FLAT),
    "flash_sac": (*PENDULUM, "execution=auto", "agent=flash_sac", *FLAT),
    "droq": (
        *PENDULUM,
        "execution=auto",
        "agent=droq",
        "updates_per_step=1",
        "agent.actor_update_frequency=3",
        "agent.num_target_critics=1",
        *FLAT,
    ),
    "td3": (*PENDULUM, "execution=auto", "agent=td3"),
    "choices": ("env=probes:ProbeChoices-v0", "execution=auto", "agent=sac_discrete", "num_envs=2", "n_step=3"),
    "ring": (*PENDULUM, "replay_buffer_capacity=50", "sample_with_replacement=false", "update_every=7"),
    "fraction": ("env=ProbeTimeLimit-v0", "updates_per_step=0.3", "agent.actor_update_frequency=3"),
    "held": ("env=cartpole_balance", "env_kwargs.time_limit=1", "action_repeat=3", "num_eval_episodes=1"),
    "four": ("env=probes:ProbeDrawn-v0", "num_envs=4"),
    "agent_first": (*PENDULUM, "seed_policy=agent", "agent/temperature=exponential"),
    "followers": (
        *("env=probes:ProbeDrawn-v0", "execution=auto", "num_envs=2", "n_step=3"),
        *FLAT,
        "agent/observation_normaliser=running",
        *("agent/reward_normaliser=returns", "agent/exploration=held", "agent.critic_weight_decay=0.01"),
    ),
    "pixels": (
        *("env=ProbeImages-v0", "agent=drq", *TINY, "execution=auto", "replay_buffer_capacity=60", *FLAT),
        *("frame_stack=2", "action_repeat=1", "log_save_tb=true", "log_frequency=50"),
    ),
    "bursts": (*PENDULUM, "min_buffer_size=55", "update_every=20"),
}


SLOW = ("flash_sac", "pixels", "followers", "td3", "droq")  # slow, and other cases cover their parts


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.thorough) if case in SLOW else case for case in CASES]
)
def test_killed_twice_it_ends_in_the_same_bytes(tmp_path: Path, case: str) -> None:
    run = (*RUN, *CASES[case])
    probes.train(tmp_path / "straight", *run)
    run_until(tmp_path / "killed", 81, *run)  # eval.csv is newer than step 60's checkpoint: resuming removes it
    again = Workspace(
        resume.continuation(tmp_path / "killed", [], trusted=["probes"]).cfg, tmp_path / "killed", resume=True
    )
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


def test_environments_may_move_into_processes(tmp_path: Path) -> None:
    run = (*RUN, "env=probes:ProbeDrawn-v0", "num_envs=2")
    probes.train(tmp_path / "straight", *run)
    run_until(tmp_path / "killed", 100, *run)
    assert go_on(tmp_path / "killed", "async_envs=true").cfg.async_envs
    assert_same(tmp_path / "killed", tmp_path / "straight")


def test_every_generator_goes_on(tmp_path: Path) -> None:
    def draw() -> tuple[float, ...]:
        return random.random(), np.random.random(), np.random.normal(), torch.rand(1).item()

    first = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=30")
    draw()
    first.run()
    first.close()
    expected = draw()
    Workspace(resume.continuation(tmp_path, []).cfg, tmp_path, resume=True).close()
    assert draw() == expected


def test_a_kill_during_an_evaluation_loses_none(tmp_path: Path) -> None:
    run = ("env=ProbeTimeLimit-v0", *RUN, "eval_frequency=60")
    probes.train(tmp_path / "straight", *run)
    dying = probes.workspace(tmp_path / "killed", *run)

    def die(*_: Any) -> None:
        raise Killed

    dying.evaluator.evaluate = die  # type: ignore[method-assign]
    with pytest.raises(Killed):
        dying.run()
    dying.close()
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


def test_logs_shorter_than_the_checkpoint_says_are_not_padded(tmp_path: Path) -> None:
    run_until(tmp_path, 100, "env=ProbeTimeLimit-v0", *RUN)
    log = tmp_path / "train.csv"
    kept = log.read_bytes()[:200]
    log.write_bytes(kept)
    with pytest.raises(UserError, match=r"train\.csv: 200 bytes, where its checkpoint left \d+"):
        go_on(tmp_path)
    assert log.read_bytes() == kept


def test_a_finished_run_is_extended_and_its_end_cut(tmp_path: Path) -> None:
    run = ("env=ProbeTimeLimit-v0", *RUN)
    probes.train(tmp_path / "long", *run, "replay_buffer_capacity=100")
    probes.train(tmp_path / "short", *run, "num_train_steps=102", "replay_buffer_capacity=100")
    assert run_folder.finished(tmp_path / "short") == (102, 5.0)
    extended = go_on(tmp_path / "short", "num_train_steps=160")
    assert extended.cfg.replay_buffer_capacity == 100
    assert_same(tmp_path / "short", tmp_path / "long")
    assert resume.continuation(tmp_path / "short", []).cfg.num_train_steps == 160  # the new length is saved


def test_a_finished_run_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert train.continue_run(tmp_path, []) == 5.0
    assert "finished at step 160" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_capacity_stays_where_it_followed_the_steps(tmp_path: Path) -> None:
    run_until(tmp_path, 100, "env=ProbeTimeLimit-v0", *RUN)
    goes_on = resume.continuation(tmp_path, ["num_train_steps=1e4", "log_frequency=7", "num_eval_episodes=3"]).cfg
    assert (goes_on.num_train_steps, goes_on.replay_buffer_capacity) == (10_000, 160)
    assert goes_on.logger["log_frequency"] == 7 and goes_on.evaluator["num_episodes"] == 3


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, which tests only read."""
    folder = tmp_path_factory.mktemp("finished")
    probes.train(folder, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40")
    return folder


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("seed=2", "seed=2 would change the run, which has seed=1"),
        ("env=Pendulum-v1", "env=Pendulum-v1 would change"),
        ("agent=sac_v", "agent.*would change the run"),
        ("agent.discount=0.5", "agent.discount=0.5 would change the run, which has agent.discount=0.99"),
        ("preset=cpu", "would change the run"),
        ("agent/temperature=fixed", "agent.temperature._target_=agent.temperature.FixedTemperature would change"),
        ("num_threads=2", "num_threads=2 would change"),
        ("replay_buffer_capacity=77", "replay_buffer_capacity=77 would change"),
        ("reward_scale=1.5", "reward_scale=1.5 would change the run"),
        ("num_envs=2", "num_envs=2 would change"),
        ("batch_size=3", "did you mean agent.batch_size"),
        ("checkpoint_frequency=-1", "checkpoint_frequency=-1: it should be"),
    ],
)
def test_what_would_change_the_run_is_refused_by_name(finished: Path, override: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        resume.continuation(finished, [override])


def test_the_same_command_is_no_change(tmp_path: Path) -> None:
    command = (
        *("preset=cpu", "env=ProbeTimeLimit-v0", *probes.SMALL, *RUN, "num_train_steps=40", "agent=sac", "seed=1"),
        *(
            "agent.actor_betas=[0.8,0.9]",
            "reward_scale=2",
            "device=auto",
            "num_threads=1",
            "precision=auto",
            "execution=auto",
        ),
    )
    probes.train(tmp_path, *command)
    assert resume.continuation(tmp_path, list(command)).cfg.reward_scale == 2


def test_fewer_steps_than_there_were_are_refused(tmp_path: Path) -> None:
    run_until(tmp_path, 100, "env=ProbeTimeLimit-v0", *RUN)
    with pytest.raises(UserError, match="num_train_steps=50: the run is at step 90 already"):
        go_on(tmp_path, "num_train_steps=50")


def test_folders_without_a_run_or_a_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "sweep/run"
    with pytest.raises(UserError, match=r"no run's folder; there is no config\.yaml"):
        train.continue_run(tmp_path, [])
    probes.train(run, "env=ProbeTimeLimit-v0", "num_train_steps=20")
    with pytest.raises(UserError, match="there is no checkpoint in it"):
        train.continue_run(run, [])
    (run / "checkpoints/step_9").mkdir(parents=True)
    for folder, hint in (
        (tmp_path / "nowhere", "there is no such folder"),
        (run / "checkpoints/step_9", f"did you mean {shlex.quote(f'resume={run}')}?"),
        (tmp_path, f"it holds 1, such as {shlex.quote(f'resume={run}')}"),
    ):
        with pytest.raises(UserError, match=f"^resume={re.escape(str(folder))}: no run's folder; .*{re.escape(hint)}$"):
            train.continue_run(folder, [])


def test_a_run_of_another_version_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(checkpoint, "FORMAT", 1)
        probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40")
    config = OmegaConf.load(tmp_path / "config.yaml")
    del config["replay_buffer"]  # runs of format 1 had no such node
    OmegaConf.save(config, tmp_path / "config.yaml")
    with pytest.raises(UserError, match=r"step_40: a checkpoint of format 1; this version reads 2"):
        train.continue_run(tmp_path, [])


def test_a_strangers_configuration_runs_no_code(tmp_path: Path) -> None:
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40")
    config = tmp_path / "config.yaml"
    config.write_text(config.read_text().replace("agent.critic.CriticEnsemble", "os.system"))
    with pytest.raises(UserError, match=r"agent\.critic\._target_=os\.system: none of this project's classes"):
        train.continue_run(tmp_path, [])


def test_another_shape_is_named(tmp_path: Path) -> None:
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40")
    config = tmp_path / "config.yaml"
    config.write_text(config.read_text().replace("env: ProbeTimeLimit-v0", "env: Pendulum-v1"))
    with pytest.raises(UserError, match="of env=ProbeTimeLimit-v0, not of env=Pendulum-v1"):
        go_on(tmp_path, "num_train_steps=80")
    config.write_text(
        config.read_text().replace("env: Pendulum-v1", "env: ProbeTimeLimit-v0").replace("_dim: 16", "_dim: 17")
    )
    with pytest.raises(UserError, match="does not fit this run"):
        go_on(tmp_path, "num_train_steps=80")


def test_without_its_buffer_a_run_collects_before_it_learns_on(tmp_path: Path) -> None:
    run_until(tmp_path, 100, "env=ProbeTimeLimit-v0", *RUN, "save_replay_buffer=false")
    assert not list((tmp_path / "checkpoints/buffer").iterdir())
    continued = go_on(tmp_path)
    assert continued.step == 160 and continued.replay_buffer.num_added == 70
    assert continued.agent.num_updates == 50 + 30  # the first 40 of the 70 only refilled the buffer


def test_one_process_a_folder(tmp_path: Path) -> None:
    first = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", *RUN)
    with pytest.raises(
        UserError, match=rf"{re.escape(str(tmp_path))}: process {os.getpid()} on .* is working in this folder"
    ):
        probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", *RUN)
    first.close()
    with pytest.raises(UserError, match="a run is there already"):
        probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", *RUN)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resume=auto"], r"resume=auto: name the folder to look into, such as hydra\.run\.dir="),
        (["resume=auto", "seed=1,2", "-m"], r"such as hydra\.sweep\.dir="),
        (["resume="], "a run's folder goes here, or auto"),
        (["resume=a", "resume=b"], "a run's folder goes here"),
        (["resume=nowhere"], "no run's folder"),
        (["resume=exp/x", "seed=1,2", "-m"], "-m: not with resume=<folder>"),
        (["resume=exp/x", "hydra.run.dir=y"], "hydra.run.dir=y: not with resume=<folder>"),
    ],
)
def test_mistakes_on_the_command_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", "env=Pendulum-v1", *arguments])
    if "resume=nowhere" in arguments:
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    assert train.main() == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(message, said)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_hydra_could_not_parse() -> None:
    assert argv.take_resume(["resume=exp/seed=1,(x)", "num_train_steps=5"]) == (
        ["num_train_steps=5"],
        "exp/seed=1,(x)",
    )


def test_another_device_chooses_for_itself(tmp_path: Path) -> None:
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40")
    path = tmp_path / "config.yaml"
    saved = OmegaConf.load(path)
    gpu = {"device": "cuda", "precision": "tf32", "execution": "captured", "replay_storage": "device"}
    OmegaConf.save(OmegaConf.merge(saved, gpu), path)
    cfg = resume.continuation(tmp_path, ["device=cpu"]).cfg
    assert (cfg.device, cfg.precision, cfg.execution, cfg.replay_storage) == ("cpu", "auto", "auto", "auto")
    OmegaConf.save(OmegaConf.merge(saved, gpu | {"precision": "bf16"}), path)
    assert resume.continuation(tmp_path, ["device=cpu"]).cfg.precision == "bf16"
    # A request for the choice that the old device had is a request, too.
    OmegaConf.save(OmegaConf.merge(saved, {"device": "cuda", "execution": "eager", "replay_storage": "host"}), path)
    cfg = resume.continuation(tmp_path, ["device=cpu", "execution=eager", "replay_storage=host"]).cfg
    assert (cfg.device, cfg.execution, cfg.replay_storage) == ("cpu", "eager", "host")


def test_a_run_whose_last_step_went_beyond_its_end_can_be_finished(tmp_path: Path) -> None:
    """It was killed in its last evaluation."""
    run = ("env=ProbeTimeLimit-v0", *RUN, "num_envs=3", "num_train_steps=100")
    whole = probes.train(tmp_path / "whole", *run).work_dir
    killed = shutil.copytree(whole, tmp_path / "killed")
    (killed / "finished.json").unlink()
    assert go_on(killed).step == 102
    assert_same(killed, whole)
    with pytest.raises(UserError, match="num_train_steps=99: the run is at step 102 already"):
        go_on(killed, "num_train_steps=99")
