"""A user's code that ends its process with exit code 0: its run fails with a message; a sweep's other runs go on."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import exits
import probes
import pytest
from composed import settings
from runs import ONE_THREAD, ROOT, RUN, SILENT

from launch import own_process
from launch.launchers import RAY
from run.saving import folder as run_folder
from utils import RunError

ENDING = ("env=ProbeEnding-v0", *probes.SMALL, *RUN, *SILENT)


@pytest.mark.parametrize("how", exits.HOW)
@pytest.mark.parametrize(
    ("where", "code", "message"),
    [
        ("init", 2, "it cannot be built (SystemExit in "),
        ("reset", 3, "its reset raised SystemExit: 0; stopped at step 45; the last good checkpoint is run/"),
        ("step", 3, "its step raised SystemExit: 0; stopped at step 42; the last good checkpoint is run/"),
    ],
)
def test_an_environment_that_ends_the_process(
    how: str, where: str, code: int, message: str, command: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(*ENDING, f"env_kwargs.how={how}", f"env_kwargs.where={where}", "hydra.run.dir=run") == code
    first, *trace = capfd.readouterr().err.splitlines()
    assert first.startswith(f"train.py: env=ProbeEnding-v0: {message}") and "exits.py" in "".join([first, *trace])
    assert code == 2 or trace[-1] == "SystemExit: 0"
    assert not Path("run/finished.json").exists() and Path("run").exists() == (code == 3)


def test_an_environment_in_its_own_process(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, *ENDING[:-2], "env=exits:ProbeEnding-v0", "num_envs=2", "async_envs=true")
    with pytest.raises(RunError, match=r"its step raised SystemExit: 0; stopped at step 84; .*step_60"):
        run.run()
    run.close()


def test_a_process_that_an_environment_forks_ends_by_itself(tmp_path: Path) -> None:
    probes.train(tmp_path, *ENDING[:-2], "env_kwargs.how=fork", "num_train_steps=20")
    assert run_folder.finished(tmp_path) == (20, 5.0)


def test_what_ends_the_process_elsewhere_is_a_line_too(
    command: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    evaluator = "evaluator={_target_: exits.EndingEvaluator, _partial_: true}"
    assert command("env=ProbeTimeLimit-v0", *ENDING[1:], evaluator, "hydra.run.dir=run") == 3
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("train.py")]
    assert "SystemExit in " in line and "exits.py" in line and "; the last good checkpoint is run/" in line
    assert not Path("run/finished.json").exists()


def test_the_other_runs_of_a_sweep_go_on(command: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    assert command("-m", *ENDING, "env_kwargs.how=os,sys,none", "hydra.sweep.dir=sw") == 3
    printed = capfd.readouterr().err
    assert "train.py: 2 of the sweep's runs failed:" in printed
    for how in exits.HOW:
        failed = json.loads(Path(f"sw/env_kwargs.how-{how}/failed.json").read_text())
        assert failed["reason"].startswith("env=ProbeEnding-v0: its step raised SystemExit: 0; stopped at step 42")
    assert run_folder.finished(Path("sw/env_kwargs.how-none")) == (160, 5.0)


@pytest.mark.parametrize("steps", [None, 159])
def test_a_pools_run_that_ends_unfinished_has_failed(
    steps: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if steps:  # a file left by a shorter run, which this one should have continued
        run_folder.mark_finished(tmp_path, steps, 5.0)
    monkeypatch.setattr(own_process, "run", lambda *_: None)
    with pytest.raises(RunError, match="ended with exit code 0 before the run was finished"):
        own_process.run_in_pool([], tmp_path, settings("num_train_steps=160"), RAY, tmp_path, {})
    run_folder.mark_finished(tmp_path, 160, 5.0)
    assert own_process.run_in_pool([], tmp_path, settings("num_train_steps=160"), RAY, tmp_path, {}) == 5.0


def test_within_an_environments_step_the_run_itself_can_end_at_once() -> None:
    code = "from envs.errors import exit_reported\nfrom run.stopping import Stopping\n"
    code += "with exit_reported():\n    Stopping(1)._give_up()"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ONE_THREAD, capture_output=True, check=False)
    assert ended.returncode == 75, ended.stderr
