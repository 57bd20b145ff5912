"""A run's folder: who works in it, and whether the run has finished or failed."""

import contextlib
import json
import os
import shlex
import socket
from pathlib import Path
from typing import Any

from utils import UserError, lock, write_atomic

FINISHED, FAILED = "finished.json", "failed.json"
LOGS = ("train.csv", "eval.csv")


def claim(folder: Path, may_exist: bool = False, may_continue: bool = False) -> Path:
    """Creates a folder for one run or sweep; if its name is taken, `_2`, `_3`, … is appended.

    Args:
        may_exist: use the folder even if it exists. A run in it is still never overwritten.
        may_continue: the folder may hold a run.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    if may_exist:
        folder.mkdir(exist_ok=True)
        if not may_continue:
            refuse_used(folder)
        return folder
    candidate, attempt = folder, 1
    while True:
        with contextlib.suppress(FileExistsError):
            candidate.mkdir()
            return candidate
        attempt += 1
        candidate = folder.with_name(f"{folder.name}_{attempt}")


def refuse_used(folder: Path) -> None:
    """Raises UserError if the folder holds a run with logs or checkpoints."""
    if any((folder / name).exists() for name in LOGS) or any(folder.glob("checkpoints/step_*")):
        hint = shlex.quote(f"resume={folder}")
        raise UserError(f"{folder}: a run is there already; choose another folder, or continue it with {hint}")


class Lock:
    """Lets only one process work in a run's folder. The operating system releases it when the process ends.

    Raises:
        UserError: if another process holds it.
    """

    def __init__(self, folder: Path):
        path = folder / ".lock"
        try:
            self._descriptor = lock(path)
        except BlockingIOError:
            raise UserError(
                f"{folder}: process {path.read_text(encoding='utf-8').strip()} is working in this folder"
            ) from None
        path.write_text(f"{os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")

    def release(self) -> None:
        """Releases the lock; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def mark_finished(folder: Path, **result: Any) -> None:
    """Records that a run is complete: `step`, `last_return` of its last evaluation, `solved_step`, and `pruned`."""
    write_atomic(folder / FINISHED, json.dumps(result))
    (folder / FAILED).unlink(missing_ok=True)


def read_finished(folder: Path) -> dict[str, Any] | None:
    """Returns what `mark_finished` recorded; None for a run that is not complete."""
    path = folder / FINISHED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def mark_failed(folder: Path, overrides: list[str], reason: str) -> None:
    """Records why a run of a sweep failed, until `mark_finished`; `overrides` distinguish it from the others."""
    write_atomic(folder / FAILED, json.dumps({"overrides": overrides, "reason": reason}))


def read_failure(folder: Path) -> dict[str, Any] | None:
    """Returns what `mark_failed` recorded; None for a run that has not failed."""
    path = folder / FAILED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
