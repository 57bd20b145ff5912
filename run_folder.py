"""What a run's folder says of it: who works in it now, and whether it is finished."""

import contextlib
import fcntl
import json
import os
import socket
import time
from pathlib import Path

from utils import UserError, write_atomically

FINISHED, FAILED = "finished.json", "failed.json"


class Lock:
    """One process a run folder. The lock dies with its owner, however that ends.

    Raises:
        UserError: if somebody has it.
    """

    def __init__(self, folder: Path):
        path = folder / ".lock"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise UserError(f"{folder}: process {path.read_text().strip()} is working in this folder") from None
        except OSError as error:  # a file system without locks
            print(f"{folder}: nothing keeps a second process out of it ({error.strerror})")
        os.truncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def mark_finished(folder: Path, step: int, last_return: float) -> None:
    """Says that a run is complete, its last evaluation included."""
    write_atomically(folder / FINISHED, json.dumps({"step": step, "last_return": last_return}))


def finished(folder: Path) -> tuple[int, float] | None:
    """The last step and the final return of a complete run; None for one that is not."""
    try:
        said = json.loads((folder / FINISHED).read_text())
        return int(said["step"]), float(said["last_return"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def unmark_finished(folder: Path) -> None:
    (folder / FINISHED).unlink(missing_ok=True)


def mark_failed(folder: Path, overrides: list[str], reason: str) -> None:
    """Says why a run of a sweep ended before its time; what it begins with again is `unmark_failed`."""
    write_atomically(folder / FAILED, json.dumps({"overrides": overrides, "reason": reason}))


def unmark_failed(folder: Path) -> None:
    (folder / FAILED).unlink(missing_ok=True)


def failures(sweep: Path) -> dict[Path, int]:
    """Where a sweep's failures are written down, and when (ns), so that new ones can be told from old."""
    return {path: path.stat().st_mtime_ns for path in sorted(sweep.rglob(FAILED))}


def new_failures(sweep: Path, before: dict[Path, int]) -> list[str]:
    """A line for each failure that is not one of `before`: the run's overrides, and the reason."""
    new = [path for path, written_ns in failures(sweep).items() if before.get(path) != written_ns]
    said = [(path, json.loads(path.read_text())) for path in new]
    return [f"{' '.join(what['overrides']) or path.parent.name}: {what['reason']}" for path, what in said]


def wait_until_free(folder: Path, seconds: float) -> None:
    """Returns when nobody works in a folder, or after so many seconds."""
    until_s = time.monotonic() + seconds
    while (folder / ".lock").exists() and time.monotonic() < until_s:
        try:
            Lock(folder).release()
            return
        except UserError:
            time.sleep(0.2)
