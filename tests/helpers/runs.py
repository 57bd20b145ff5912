"""Runs that die and go on, the command in its own process, and comparisons of two runs."""

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
from hydra.core.override_parser.types import Quote, QuotedString
from kills import Killed
from same_run import result, same

from run.checkpoint import list_checkpoints
from run.resume import load_settings
from run.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
# A child process's environment: with such small networks, a second thread only waits.
ONE_THREAD = {key: value for key, value in os.environ.items() if key != "HYDRA_FULL_ERROR"} | {"OMP_NUM_THREADS": "1"}
# Not even root can write into a home that is a device. HOMES (unset) name other places, or switch off telemetry.
HOMES = {"MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "ORT_DISABLE_TELEMETRY"}
HOMELESS = {key: value for key, value in ONE_THREAD.items() if key not in HOMES} | {"HOME": os.devnull}
SILENT = ("hydra/job_logging=none", "hydra/hydra_logging=none")  # Hydra's log handlers would outlive the test
RUN = ("checkpoint_frequency=30", "num_train_steps=160", "num_seed_steps=40", "eval_frequency=70", "num_threads=1")


def quoted(path: Path) -> str:
    """Returns a path as a key's value, quoted for any characters in it."""
    return QuotedString(str(path), Quote.single).with_quotes()


def run_until(folder: Path, step: int, *overrides: str) -> None:
    """Makes a run that dies in the middle of a step."""
    die_in(probes.workspace(folder, *overrides), step)


def die_in(dying: Workspace, step: int) -> None:
    def die() -> None:
        raise Killed

    at_step(dying, step, die, or_later=True)
    with pytest.raises(Killed):
        dying.run()


def at_step(run: Workspace, step: int, happens: Callable[[], Any], or_later: bool = False) -> None:
    """Makes a run call `happens` just before the environments' step at `step`."""
    take = run.envs.step

    def taken(actions: np.ndarray) -> Any:
        if run.step == step or (or_later and run.step > step):
            happens()
        return take(actions)

    run.envs.step = taken  # type: ignore[method-assign]


def go_on(folder: Path, *overrides: str) -> Workspace:
    cfg = load_settings(folder, ("probes", "own_buffers", "counting"), overrides)
    continued = Workspace(cfg, folder, resume=True)
    continued.run()
    return continued


def assert_same(folder: Path, straight: Path) -> None:
    got, expected = result(folder), result(straight)
    different = [what for what in expected if not same(got[what], expected[what])]
    assert not different
    kept = [[path.name for path in list_checkpoints(run)] for run in (folder, straight)]
    assert kept[0] == kept[1]


def assert_goes_on(folder: Path, step: int, *run: str, then: tuple[str, ...] = ()) -> tuple[Workspace, Workspace]:
    """Asserts that a run that dies in a step, and goes on with some overrides, ends in the bytes of an undisturbed one.

    Returns:
        The undisturbed run, and the continued one.
    """
    straight = probes.train(folder / "straight", *run)
    run_until(folder / "killed", step, *run)
    continued = go_on(folder / "killed", *then)
    assert_same(folder / "killed", folder / "straight")
    return straight, continued


def rows(path: Path) -> list[dict[str, str]]:
    """Returns the rows of train.csv or eval.csv, each by column."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_command(folder: Path, *arguments: str, program: str = "train.py") -> subprocess.CompletedProcess[str]:
    """Runs `python train.py <arguments>`, or another program, in a folder, without a home folder to write into."""
    command = [sys.executable, str(ROOT / program), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=HOMELESS, check=False)
