"""A run's folder belongs to one run, and to one process at a time."""

import os
import re
from pathlib import Path

import pytest

from run import folder as run_folder
from utils import UserError


def test_one_process_a_folder(tmp_path: Path) -> None:
    taken = rf"^{re.escape(str(tmp_path))}: process {os.getpid()} on .* is working in this folder$"
    with run_folder.lock_folder(tmp_path), pytest.raises(UserError, match=taken), run_folder.lock_folder(tmp_path):
        pass
    with run_folder.lock_folder(tmp_path):
        pass


def test_a_run_with_logs_is_never_overwritten_and_a_finished_one_says_so(tmp_path: Path) -> None:
    (tmp_path / "checkpoints/.step_0").mkdir(parents=True)  # of a run that was killed in its first checkpoint
    run_folder.refuse_used(tmp_path)
    (tmp_path / "train.csv").touch()
    with pytest.raises(UserError, match=r"a run is there already; .* or continue it with .*resume="):
        run_folder.refuse_used(tmp_path)
    assert run_folder.read_finished(tmp_path) is None
    run_folder.mark_finished(tmp_path, step=5, last_return=1.5)
    assert run_folder.read_finished(tmp_path) == {"step": 5, "last_return": 1.5}
