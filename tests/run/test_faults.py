"""A fault ends a run with an intact last checkpoint, which a note names, or does not end it; no bad value is kept."""

import re
import resource as limits
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
import torch
from runs import RUN, assert_same, at_step, go_on

from run.checkpoint import read_newest
from run.workspace import Workspace, read_finished
from utils import RunError

NEWEST = "checkpoints/step_30"
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


def test_a_run_that_calls_exit_has_failed(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, *PROBE)
    at_step(run, 42, lambda: sys.exit(0))
    with pytest.raises(RunError, match=r"^sys\.exit was called") as caught:
        run.run()
    assert isinstance(caught.value.__cause__, SystemExit) and read_finished(tmp_path) is None


def test_a_full_disk_costs_a_checkpoint_and_not_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes.train(tmp_path / "straight", *PROBE)
    run = probes.workspace(tmp_path / "run", *PROBE)
    limit_from(run, 70, 9000)
    with no_file_longer_than(2**40), pytest.raises(OSError) as caught:
        run.run()
    assert caught.value.__notes__[-1].startswith("stopped at step 160; ")
    assert re.search("No checkpoint at step 90: .*; step_60 stays", capsys.readouterr().err)
    assert read_newest(tmp_path / "run", "agent", "run", identity={}, with_rows=True).manifest["step"] == 60
    assert len(list((tmp_path / "run/checkpoints/buffer").iterdir())) == 2  # nothing of step 90
    assert not list((tmp_path / "run/checkpoints").glob(".*")) and read_finished(tmp_path / "run") is None
    go_on(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "straight")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("log", "num_bytes"), [("csv", 900), pytest.param("tensorboard", 2500, marks=pytest.mark.thorough)]
)
def test_a_log_that_cannot_be_written_stops_the_run_and_loses_nothing(tmp_path: Path, log: str, num_bytes: int) -> None:
    run = (*PROBE, f"log_save_tb={log == 'tensorboard'}")
    probes.train(tmp_path / "straight", *run)
    stopped = probes.workspace(tmp_path / "run", *run)
    limit_from(stopped, 45, num_bytes)
    with pytest.raises(OSError, match="File too large"), no_file_longer_than(2**40):
        stopped.run()
    go_on(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_the_first_checkpoint_has_to_be_written(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, *PROBE)
    with pytest.raises(OSError) as caught, no_file_longer_than(3000):
        run.run()
    assert caught.value.__notes__ == ["stopped at step 0; nothing was saved"]
    assert not (tmp_path / "train.csv").exists()


@pytest.mark.parametrize("overrides", [("env=ProbeTimeLimit-v0",), ("env=Pendulum-v1",)], ids=["row", "checkpoint"])
def test_a_folder_that_was_deleted_stays_deleted(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    folder = tmp_path / "run"
    run = probes.workspace(folder, *RUN, *overrides)
    at_step(run, 42, lambda: shutil.rmtree(folder))
    with pytest.raises(FileNotFoundError):
        run.run()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("observation", r"observation\[0, 0\] is nan"),
        ("reward", r"reward\[0\] is inf"),
        ("huge reward", r"reward\[0\] is 1e\+39"),
        ("action", r"action\[0, 0\] is nan"),
        ("loss", r"train_critic/loss is nan"),
        ("weight", r"agent.critic_target.trunk.0.weight is not finite"),
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
    with pytest.raises(RunError, match=message) as caught:
        run.run()
    assert caught.value.__notes__ == [f"stopped at step {run.step}; the newest checkpoint is {tmp_path}/{NEWEST}"]
    stored = run.replay_buffer
    assert np.isfinite(stored.rows[: len(stored)]).all()
    assert read_newest(tmp_path, "agent", "run", identity={}, with_rows=True).manifest["step"] == 30
