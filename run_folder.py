"""What a run's folder says of it: who works in it now, and whether it is finished."""

import contextlib
import fcntl
import json
import os
import socket
from pathlib import Path

from utils import UserError, write_atomically

FINISHED = "finished.json"


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
