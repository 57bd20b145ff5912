"""A run's folder: who works in it, and whether the run has finished or failed."""

import json
import os
import shlex
import socket
from pathlib import Path
from typing import Any

from utils import UserError, lock, write_atomic

FINISHED, FAILED = "finished.json", "failed.json"
LOGS = ("train.csv", "eval.csv")


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
