"""A run's folder belongs to one run, and to one process at a time."""

import os
import re
from pathlib import Path

import pytest

from run import folder as run_folder
from utils import UserError


def test_runs_of_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    claimed = [run_folder.claim(tmp_path / "exp/day/run") for _ in range(3)]
    assert [path.name for path in claimed] == ["run", "run_2", "run_3"]


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    assert run_folder.claim(tmp_path, may_exist=True) == tmp_path
    (tmp_path / "config.yaml").touch()
    (tmp_path / "checkpoints/.step_0").mkdir(parents=True)  # of a run that was killed in its first checkpoint
    run_folder.claim(tmp_path, may_exist=True)
    (tmp_path / "train.csv").touch()
    with pytest.raises(UserError, match=f"^{tmp_path}: a run is there already; .* resume={tmp_path}"):
        run_folder.claim(tmp_path, may_exist=True)
    assert run_folder.claim(tmp_path, may_exist=True, may_continue=True) == tmp_path


def test_one_process_a_folder(tmp_path: Path) -> None:
    lock = run_folder.Lock(tmp_path)
    taken = rf"^{re.escape(str(tmp_path))}: process {os.getpid()} on .* is working in this folder$"
    with pytest.raises(UserError, match=taken):
        run_folder.Lock(tmp_path)
    lock.release()
    lock.release()
    run_folder.Lock(tmp_path).release()


def test_marks(tmp_path: Path) -> None:
    assert run_folder.read_finished(tmp_path) is None and run_folder.read_failure(tmp_path) is None
    run_folder.mark_failed(tmp_path, ["seed=1"], "no space")
    assert run_folder.read_failure(tmp_path) == {"overrides": ["seed=1"], "reason": "no space"}
    run_folder.mark_finished(tmp_path, step=5, last_return=1.5)
    assert run_folder.read_finished(tmp_path) == {"step": 5, "last_return": 1.5}
    assert run_folder.read_failure(tmp_path) is None
