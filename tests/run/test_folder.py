"""A run's folder belongs to one run, and to one process at a time."""

import math
import os
import re
from pathlib import Path
from types import SimpleNamespace

import probes
import pytest

from run.saving import folder as run_folder
from sinks.tensorboard import TensorBoardSink
from utils import UserError


def test_runs_of_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    claimed = [run_folder.claim(tmp_path / "exp/day/run", "hydra.run.dir") for _ in range(3)]
    assert [path.name for path in claimed] == ["run", "run_2", "run_3"]


def test_waiting_for_a_folder_that_somebody_works_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, released_at_s = 0.0, math.inf

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        if now_s >= released_at_s:
            lock.release()

    monkeypatch.setattr(run_folder, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    run_folder.wait_until_free(tmp_path, 60)
    assert now_s == 0  # no process has ever worked there

    lock = run_folder.Lock(tmp_path)
    run_folder.wait_until_free(tmp_path, 10)
    assert 10 <= now_s < 11
    with pytest.raises(
        UserError, match=rf"{re.escape(str(tmp_path))}: process {os.getpid()} on .* is working in this folder"
    ):
        run_folder.Lock(tmp_path)

    os.truncate(tmp_path / ".lock", 0)  # as before the other process has written its id
    with pytest.raises(UserError, match=rf"{re.escape(str(tmp_path))}: another process is working in this folder"):
        run_folder.Lock(tmp_path)

    released_at_s = 20.0
    run_folder.wait_until_free(tmp_path, 60)
    assert 20 <= now_s < 21
    run_folder.wait_until_free(tmp_path, 60)
    assert now_s < 21  # the other process has left
    run_folder.Lock(tmp_path).release()


def test_a_folder_is_in_place_until_it_is_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    lock = run_folder.Lock(folder)
    (folder / ".lock").unlink()  # the folder itself is still the same
    lock.require_in_place()

    def no_answer(*_: object) -> None:
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", no_answer)
        assert lock.is_in_place()
    folder.rename(tmp_path / "moved")
    folder.mkdir()
    assert not lock.is_in_place()
    with pytest.raises(FileNotFoundError, match=re.escape(str(folder))):
        lock.require_in_place()
    (tmp_path / "moved").rename(tmp_path / "moved again")
    lock.release()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"hydra\.run\.dir=/proc/sys/vm: the folder cannot be created or written"):
        run_folder.claim(Path("/proc/sys/vm"), "hydra.run.dir", may_exist=True)
    with pytest.raises(UserError, match="/proc/sys/vm: the folder cannot be written"):
        run_folder.Lock(Path("/proc/sys/vm"))  # as when a run is continued
    assert run_folder.claim(tmp_path, "hydra.run.dir", may_exist=True) == tmp_path and not list(tmp_path.iterdir())


def test_a_log_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tb").write_text("a file")
    with pytest.raises(UserError, match=r"/tb: a file, where the events.* folder has to be; remove it$"):
        probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", "log_save_tb=true")


def test_a_folder_that_tensorboard_would_not_find_is_one_line() -> None:
    with pytest.raises(
        UserError, match=r"/tb: its name is not UTF-8, which TensorBoard needs; choose .*LC_ALL=C\.UTF-8"
    ):
        TensorBoardSink(Path(os.fsdecode(b"L\xe4ufer")))
