"""A fault ends a run with a clear line and an intact last checkpoint, or does not end it; no bad value is kept."""

import os
import resource as limits
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import probes
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv
from runs import RUN, assert_same, at_step, go_on

from envs.processes import make_train_envs
from run.saving import checkpoint
from sinks.tensorboard import TensorBoardSink
from train import Workspace
from utils import RunError

PROBE = ("env=ProbeTimeLimit-v0", *RUN)


@contextmanager
def no_file_longer_than(num_bytes: int) -> Iterator[None]:
    """Limits the size of this process's files, so that writes fail as on a full disk.

    No bytecode is written meanwhile: Python would not notice that a module's file was cut off at the limit, and could
    not import it any more.
    """
    soft, hard = limits.getrlimit(limits.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "dont_write_bytecode", True)
        patched.setenv("PYTHONDONTWRITEBYTECODE", "1")  # for child processes, which inherit the limit
        limits.setrlimit(limits.RLIMIT_FSIZE, (num_bytes, hard))
        try:
            yield
        finally:
            limits.setrlimit(limits.RLIMIT_FSIZE, (soft, hard))


def limit_from(run: Workspace, step: int, num_bytes: int) -> None:
    hard = limits.getrlimit(limits.RLIMIT_FSIZE)[1]
    at_step(run, step, lambda: limits.setrlimit(limits.RLIMIT_FSIZE, (num_bytes, hard)))


def test_a_full_disk_costs_a_checkpoint_and_not_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes.train(tmp_path / "straight", *PROBE)
    run = probes.workspace(tmp_path / "run", *PROBE)
    limit_from(run, 70, 9000)
    message = r"the end of the run is not saved; stopped at step 160; the last good checkpoint is .*step_60$"
    with no_file_longer_than(2**40), pytest.raises(RunError, match=message):
        run.run()
    run.close()
    said = capsys.readouterr().err
    assert "No checkpoint at step 90: File too large; that of step 60 stays" in said
    found, broken = checkpoint.newest_intact(tmp_path / "run", "agent", "run", buffer=True)
    assert found.step == 60 and not broken
    assert not list((tmp_path / "run/checkpoints").glob(".*"))
    assert not (tmp_path / "run/finished.json").exists()
    go_on(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "straight")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("log", "num_bytes"), [("csv", 900), ("tensorboard", 2500)])
def test_a_log_that_cannot_be_written_stops_the_run_and_loses_nothing(tmp_path: Path, log: str, num_bytes: int) -> None:
    run = (*PROBE, f"log_save_tb={log == 'tensorboard'}")
    probes.train(tmp_path / "straight", *run)
    stopped = probes.workspace(tmp_path / "run", *run)
    limit_from(stopped, 45, num_bytes)
    with (
        pytest.raises(RunError, match=r"File too large.*; stopped at step \d+; the last good checkpoint is .*step_30$"),
        no_file_longer_than(2**40),
    ):
        stopped.run()
    stopped.close()
    go_on(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_the_first_checkpoint_has_to_be_written(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, *PROBE)
    with pytest.raises(RunError, match="nothing was saved"), no_file_longer_than(3000):
        run.run()
    run.close()
    assert not (tmp_path / "train.csv").exists()


def delete(folder: Path) -> None:
    shutil.rmtree(folder)


def move(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def replace(folder: Path) -> None:
    """Moves the folder; another run begins in a new folder of that name."""
    move(folder)
    folder.mkdir()
    (folder / ".lock").touch()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("vanish", [delete, move, replace])
@pytest.mark.parametrize(
    "overrides",
    [
        ("env=ProbeTimeLimit-v0", "save_figure=true"),  # noticed at the next row of the logs
        ("env=Pendulum-v1",),  # has no row before step 200: noticed at the next checkpoint
        ("env=Pendulum-v1", "eval_frequency=50", "save_video=true"),
        ("env=Pendulum-v1", "log_save_tb=true", "logger.sinks.csv=null"),
        ("env=Pendulum-v1", "checkpoint_frequency=0", "logger.sinks.csv=null"),  # noticed at the end
    ],
)
def test_a_run_folder_that_vanishes(tmp_path: Path, vanish: Callable[[Path], None], overrides: tuple[str, ...]) -> None:
    folder = tmp_path / "run"
    run = probes.workspace(folder, *RUN, *overrides)
    at_step(run, 42, lambda: vanish(folder))
    message = rf"No such file or directory: .*; stopped at step \d+; its folder {folder} was moved or deleted while it"
    with pytest.raises(RunError, match=message) as caught:
        run.run()
    run.close()
    assert "\n" not in str(caught.value) and "checkpoint" not in str(caught.value)
    assert not (folder.exists() if vanish is not replace else (folder / "checkpoints").exists())


def test_tensorboards_thread_prints_no_traceback_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)  # instead of pytest's
    (tmp_path / "run").mkdir()
    sink = TensorBoardSink(tmp_path / "run")
    delete(tmp_path / "run")
    with pytest.raises(OSError, match="No such file or directory"):
        for step in range(2):  # at the first flush the thread may not have failed yet
            sink.scalars({"train/episode_reward": 1.0}, step)
            sink.dump("train", {}, step)

    def fail() -> None:
        raise ZeroDivisionError

    assert capsys.readouterr().err == ""
    other = threading.Thread(target=fail)
    other.start()
    other.join()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_folder_of_checkpoints_that_vanishes_is_not_named(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, "env=ProbeFaulty-v0", *RUN)
    at_step(run, 40, lambda: shutil.rmtree(tmp_path / "checkpoints"))
    with pytest.raises(RunError, match=r"stopped at step 42; nothing was saved$"):
        run.run()
    run.close()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("observation", r"observation\[0, 0\] is nan; stopped at step 43"),
        ("reward", r"reward\[0\] is inf; stopped at step 43"),
        ("huge reward", r"reward\[0\] is 1e\+39; stopped at step 43"),
        ("action", r"action\[0, 0\] is nan; stopped at step 43"),
        ("loss", r"train_critic/loss is nan; stopped at step 45"),
        ("weight", r"agent.critic_target.trunk.0.weight is not finite; stopped at step 60"),
    ],
)
def test_what_is_not_finite_stops_the_run_and_is_not_kept(tmp_path: Path, what: str, message: str) -> None:
    run = probes.workspace(tmp_path, *PROBE)
    step, act = run.envs.step, run.agent.act

    def spoiled(actions: np.ndarray) -> Any:
        obs, rewards, *rest = step(actions)
        if run.step == 43 and what == "observation":
            obs = np.full_like(obs, np.nan)
        if run.step == 43 and what == "reward":
            rewards = np.full_like(rewards, np.inf)
        if run.step == 43 and what == "huge reward":  # finite, but not as the buffer's float32
            rewards = np.full_like(rewards, 1e39)
        if run.step == 43 and what == "loss":
            run.logger.log("train_critic/loss", torch.tensor(torch.nan), run.step)
        if run.step == 58 and what == "weight":
            run.agent.critic_target.trunk.layers[0].weight.data[0, 0, 0] = torch.inf
        return obs, rewards, *rest

    def spoiled_act(obs: np.ndarray, sample: bool = False) -> np.ndarray:
        action = act(obs, sample)
        return action * np.nan if run.step == 43 and what == "action" else action

    run.envs.step, run.agent.act = spoiled, spoiled_act  # type: ignore[method-assign]
    if what == "weight":
        run.agent.update = lambda *_: None
    with pytest.raises(RunError, match=f"{message}; the last good checkpoint is .*step_30"):
        run.run()
    run.close()
    stored = run.replay_buffer
    assert np.isfinite(stored.rows[: len(stored)]).all()
    found, broken = checkpoint.newest_intact(tmp_path, "agent", "run", buffer=True)
    assert found.step == 30 and not broken


def test_a_loss_is_looked_at_before_each_checkpoint(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, "env=Pendulum-v1", *RUN)  # no row, and so no other check, before step 200
    at_step(run, 50, lambda: run.logger.log("train_actor/loss", torch.tensor(torch.inf), 50))
    with pytest.raises(RunError, match=r"train_actor/loss is inf; stopped at step 60; .*step_30"):
        run.run()
    run.close()


@pytest.mark.parametrize("physics", ["suite", "batched"])
def test_a_physics_blow_up_is_one_line(tmp_path: Path, physics: str) -> None:
    run = probes.workspace(tmp_path, "env=cartpole_balance", *RUN, f"physics={physics}")

    def blow_up() -> None:
        envs: Any = run.envs
        data = envs.envs[0].unwrapped._env.physics.data if physics == "suite" else envs._worlds._worlds[0]
        data.qvel[:] = 1e12

    at_step(run, 42, blow_up)
    message = (
        r"^env=cartpole_balance: Physics state is invalid. Warning\(s\) raised: mjWARN_\w+; stopped at step 42; .*_30"
    )
    with pytest.raises(RunError, match=message) as caught:
        run.run()
    run.close()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("answers_after", "seconds"), [(9, [1, 1, 0.5]), (1, [1, 1])])
def test_time_without_an_answer_is_counted_in_slices_so_that_ctrl_z_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, answers_after: int, seconds: list[float]
) -> None:
    envs = make_train_envs(partial(gym.make, "Pendulum-v1"), 1, num_envs=2, asynchronous=True, timeout_s=2.5)
    waited: list[float] = []

    def poll(self: AsyncVectorEnv, timeout: float) -> bool:
        waited.append(timeout)
        return len(waited) > answers_after

    with monkeypatch.context() as patch:
        patch.setattr(AsyncVectorEnv, "_poll_pipe_envs", poll)
        assert envs._poll_pipe_envs() == (answers_after < 3)  # type: ignore[union-attr]
    assert waited == seconds
    envs.close()


def test_a_process_that_cannot_be_started_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    start = BaseProcess.start

    def fails_for_the_second(process: BaseProcess) -> None:
        if process.name.endswith("-1"):
            raise OSError("no more processes")
        start(process)

    monkeypatch.setattr(BaseProcess, "start", fails_for_the_second)
    with pytest.raises(OSError, match="no more processes"):
        make_train_envs(partial(gym.make, "Pendulum-v1"), 1, num_envs=2, asynchronous=True)


@pytest.mark.parametrize(
    ("number", "timeout_s", "message"),
    [
        (signal.SIGKILL, 60, r"process died \(Killed.*\)"),
        (signal.SIGSTOP, 0.5, "not answered for env_timeout_s=0.5"),
    ],
)
def test_an_environments_process_that_dies_or_hangs(
    tmp_path: Path, number: int, timeout_s: float, message: str
) -> None:
    run = probes.workspace(tmp_path, "env=probes:ProbeTimeLimit-v0", *RUN, "num_envs=2", "async_envs=true")
    processes = run.envs.processes  # type: ignore[attr-defined]

    def hurt() -> None:
        run.envs._timeout_s = timeout_s  # type: ignore[attr-defined]  # earlier answers may take longer
        os.kill(processes[1].pid, number)

    at_step(run, 42, hurt)
    with pytest.raises(RunError, match=f"{message}; stopped at step 42; .*step_30"):
        run.run()
    run.close()
    assert not any(process.is_alive() for process in processes)
