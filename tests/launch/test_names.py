"""Folders and values whose characters mean something to Hydra or a shell work like any other names."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probes
import pytest
from runs import RUN, SILENT

import evaluate
from launch import own_process
from run.saving import folder as run_folder
from settings import compose

TINY = (*probes.SMALL, *RUN, "num_train_steps=60", "eval_frequency=60", *SILENT)
BASIC = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"


@pytest.mark.parametrize(
    ("name", "read"),
    [
        *(
            (name, name)
            for name in ("exp/a b,c=(1)", "a,b", "x[1]", "{a}", "a(1)", "str(1)", "12", "1e3", "true", "it's")
        ),
        *((name, name) for name in ('q"x', "チ", "a\\", "a\\b", "#a!b&", "a: b", "plain", "exp/${env}", "a, ${env}")),
        *(("'a,b'", "a,b"), ('"a,b"', "a,b"), ("a\\,b", "a,b"), ("a\\(1\\)", "a(1)")),  # quoted or escaped for Hydra
        *(("", ""), ("null", None)),  # no names: Hydra reads them unchanged
    ],
)
def test_a_folder_is_named_as_in_the_shell(name: str, read: str | None) -> None:
    for key in ("hydra.run.dir", "hydra.sweep.dir"):
        (override,) = compose.parse([compose.as_folder(f"{key}={name}")])
        assert override.value() == read and not override.is_sweep_override()


def test_other_keys_are_hydras_to_read() -> None:
    for text in ("seed=1,2", "hydra.run.dirs=a,b", "-m", "hydra.run.dir", "resume=auto"):
        assert compose.as_folder(text) == text


def test_a_run_in_such_a_folder_is_continued_and_played(
    tmp_path: Path, command: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "exp/a b,c=(1)"
    run = ("env=ProbeTimeLimit-v0", *TINY)
    assert command(*run, f"hydra.run.dir={name}") == 0
    assert command(f"resume={name}", "num_train_steps=90") == 0
    assert command(*run, "num_train_steps=120", "resume=auto", f"hydra.run.dir={name}") == 0
    assert run_folder.finished(tmp_path / name) == (120, 5.0)
    monkeypatch.setattr(sys, "argv", ["evaluate.py", name, "--no-video"])
    assert evaluate.main() == 0
    assert f"{name}/checkpoints/step_120: mean 5.0" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["exp"]


SWEEP = ("-m", *TINY, "experiment='a b',\"it's\",x:y")


def test_a_sweep_of_such_values_fails_and_goes_on_by_its_folders(
    tmp_path: Path, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    folders = {f"experiment-{name}" for name in ("a b", "its", "x_y")}
    assert command(*SWEEP, "env=probes:ProbeTimeLimit-v0", "hydra.sweep.dir=s w,(1)") == 0
    assert {path.parent.name for path in tmp_path.glob("s w,(1)/*/finished.json")} == folders
    capsys.readouterr()
    assert command(*SWEEP, "env=probes:ProbeTimeLimit-v0", "hydra.sweep.dir=s w,(1)", "resume=auto") == 0
    assert capsys.readouterr().out.count("nothing is left to do") == 3


def test_the_traceback_of_a_sweeps_environment_is_printed_where_it_breaks(
    tmp_path: Path, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    faulty = "env=probes:ProbeTimeLimit-v0,probes:ProbeFaulty-v0"
    assert command("-m", *TINY, faulty, "hydra.sweep.dir=s w") == 3
    trace, _, report = capsys.readouterr().err.partition("train.py: ")
    assert trace.startswith("Traceback") and "probes.py" in trace and trace.endswith("ValueError: lost\nits way\n")
    first, failed, again = report.splitlines()
    assert first == "1 of the sweep's runs failed:"
    assert failed.startswith("  env=probes:ProbeFaulty-v0: env=probes:ProbeFaulty-v0: its step raised ValueError: lost")
    assert shlex.split(again)[-2:] == ["resume=auto", f"hydra.sweep.dir={tmp_path / 's w'}"]


@pytest.mark.thorough
def test_a_pools_child_is_told_the_folder_and_the_values_that_its_run_has(
    tmp_path: Path, command: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`read` stands for the child and reads its command as the child would."""
    told = []

    def read(arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
        config: Any = compose.compose_config("train", [text for text in arguments[2:] if text[:6] != "trust="])
        told.append((Path(config.hydra.run.dir) == folder, folder.name, config.experiment, config.env))
        run_folder.mark_finished(folder, 60, 0.0)

    monkeypatch.setattr(own_process, "POOLS", (BASIC,))
    monkeypatch.setattr(own_process, "run", read)
    env = "env=probes:ProbeTimeLimit-v0,probes:ProbeFaulty-v0"
    assert command(*SWEEP, env, "hydra.sweep.dir=a\\b 'c',(1)") == 0
    values = [(text, f"probes:Probe{name}-v0") for text in ("a b", "it's", "x:y") for name in ("TimeLimit", "Faulty")]
    assert [(experiment, name) for _, _, experiment, name in told] == values
    assert all(right for right, *_ in told)
    names = {
        f"env-probes_Probe{name}-v0__experiment-{text}"
        for text in ("a b", "its", "x_y")
        for name in ("TimeLimit", "Faulty")
    }
    assert {name for _, name, *_ in told} == names
