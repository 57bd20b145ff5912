"""A run's folder: who works in it, and whether the run has finished."""

import json
import os
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from utils import UserError, lock, write_atomic

FINISHED, FAILED = "finished.json", "failed.json"


def refuse_used(folder: Path) -> None:
    """Raises UserError if the folder holds a run with logs or checkpoints."""
    if any(any(folder.glob(name)) for name in ("train.csv", "eval.csv", "checkpoints/step_*")):
        hint = shlex.quote(f"resume={folder}")
        raise UserError(f"{folder}: a run is there already; choose another folder, or continue it with {hint}")


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lets only one process work in a run's folder; the system unlocks it when a process ends, however it ends."""
    path = folder / ".lock"
    try:
        descriptor = lock(path)
    except BlockingIOError:
        holder = path.read_text(encoding="utf-8").strip()
        raise UserError(f"{folder}: process {holder} is working in this folder") from None
    path.write_text(f"{os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
    try:
        yield
    finally:
        os.close(descriptor)


def mark_finished(folder: Path, **result: Any) -> None:
    """Records that a run is complete: `step`, `last_return` of its last evaluation, `solved_step`, and `pruned`."""
    write_atomic(folder / FINISHED, json.dumps(result))
    (folder / FAILED).unlink(missing_ok=True)


def read_finished(folder: Path) -> dict[str, Any] | None:
    """Returns what `mark_finished` recorded; None for a run that is not complete."""
    path = folder / FINISHED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
