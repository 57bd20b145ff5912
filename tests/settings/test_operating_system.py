"""Training works without the features that some operating systems lack."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import probes
import psutil  # noqa: F401  before a test changes sys.platform, on which its imports depend
import pytest
from files import locks
from runs import ROOT

import evaluate
import export
import plot
from launch import first_check, own_process
from run.saving import folder as run_folder
from settings import operating_system


@pytest.fixture
def as_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(operating_system.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(operating_system.ctypes, "CDLL", None)  # no calls of prctl or mallopt
    monkeypatch.setattr(operating_system, "_CPUINFO", Path("/nowhere"))
    operating_system.of_processor.cache_clear()


@pytest.fixture
def without_fcntl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    importlib.reload(locks)
    monkeypatch.setattr(run_folder, "lock", locks.lock)
    yield
    monkeypatch.undo()
    importlib.reload(locks)


@pytest.mark.usefixtures("as_macos")
def test_a_run_trains_and_evaluates_on_what_macos_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert operating_system.usable_cpus() == (os.cpu_count() or 1)
    assert operating_system.of_processor("vendor_id") == ""
    monkeypatch.setenv("ENDS_WITH_PROCESS", str(os.getppid()))
    own_process.end_with_parent()
    overrides = ("eval_in_background=true", "num_train_steps=60", "eval_frequency=30", "agent.batch_size=4")
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *overrides)
    assert len((tmp_path / "eval.csv").read_text().splitlines()) == 3


@pytest.mark.usefixtures("without_fcntl")
def test_without_file_locks_a_run_goes_on_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_folder.Lock(tmp_path).release()
    assert "nothing keeps a second process out of it (this system has no file locks)" in capsys.readouterr().out


def test_windows_is_told_of_wsl_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as ended:
        first_check.look(["env=cheetah_run"])
    monkeypatch.setattr(sys, "argv", ["evaluate.py", "policies/cheetah_run.pt"])
    assert ended.value.code == evaluate.main() == export.main() == plot.main(["exp"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all("Windows is not supported by itself; run the same command in WSL 2" in line for line in lines)


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_what_nobody_reads_any_more_ends_a_command_without_a_traceback(unbuffered: str) -> None:
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "train.py", "--tasks"],
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
        env=environment,
    )
    os.close(write)
    assert ended.stderr == b""


def test_a_run_begins_without_standard_output_and_error(tmp_path: Path) -> None:
    small = "env=Pendulum-v1 preset=short num_train_steps=200 num_eval_episodes=1 save_video=false save_figure=false"
    line = f"exec '{sys.executable}' train.py {small} 'hydra.run.dir={tmp_path}/run' >&- 2>&-"
    ended = subprocess.run(["sh", "-c", line], cwd=ROOT, check=False)
    assert ended.returncode == 0 and (tmp_path / "run/finished.json").exists()


def test_cores_are_those_that_the_process_may_use_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5}, raising=False)
    assert operating_system.usable_cpus() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert operating_system.usable_cpus() == 7
