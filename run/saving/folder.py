"""A run's folder: claimed for it, and what it says of it: who works in it now, whether it is finished."""

import contextlib
import json
import os
import shlex
import socket
import tempfile
import time
from pathlib import Path

from run.saving.links import refuse_links
from settings import operating_system
from utils import UserError, one_line, write_atomically

FINISHED, FAILED = "finished.json", "failed.json"


def claim(folder: Path, key: str, may_exist: bool = False, may_continue: bool = False) -> Path:
    """Creates an output folder that no other run has, with `_2`, `_3`, … behind its name where it is taken.

    Args:
        may_exist: take the folder as named, even if it is there; a run in it is still never overwritten.
        may_continue: a run in it is fine.

    Raises:
        UserError: if it cannot be created, or holds a run.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if may_exist:
            folder.mkdir(exist_ok=True)
            refuse_links(folder)  # before Hydra writes into it
            if not may_continue:
                refuse_used(folder)
            tempfile.TemporaryFile(dir=folder).close()
            return folder
        for attempt in range(1, 10_000):
            candidate = folder if attempt == 1 else folder.with_name(f"{folder.name}_{attempt}")
            try:
                candidate.mkdir()
                return candidate
            except FileExistsError:
                continue
    except OSError as error:
        raise UserError(f"{key}={folder}: the folder cannot be created or written ({error.strerror})") from None
    raise UserError(f"{key}={folder}: too many folders of that name")


def refuse_used(folder: Path, names: tuple[str, ...] = ("config.yaml", "train.csv", "eval.csv")) -> None:
    """Raises UserError if the folder holds a run already."""
    if any((folder / name).exists() for name in names):
        raise UserError(
            f"hydra.run.dir={folder}: a run's logs are there already; choose another folder, or continue it "
            f"with {shlex.quote(f'resume={folder}')}"
        )


class Lock:
    """One process a run folder. The lock dies with its owner, however that ends.

    Raises:
        UserError: if somebody has it, or the folder has a link in it.
    """

    def __init__(self, folder: Path):
        refuse_links(folder)
        path = folder / ".lock"
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except IsADirectoryError:
            raise UserError(f"{path}: a folder, where the lock's file has to be; remove it") from None
        except OSError as error:
            raise UserError(f"{folder}: the folder cannot be written ({error.strerror})") from None
        try:
            operating_system.lock(self._descriptor)
        except BlockingIOError:
            os.close(self._descriptor)
            owner = one_line(path.read_text(errors="replace", encoding="utf-8"))
            raise UserError(f"{folder}: process {owner} is working in this folder") from None
        except OSError as error:  # a file system without locks
            print(f"{folder}: nothing keeps a second process out of it ({error.strerror})")
        os.truncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def mark_finished(
    folder: Path, step: int, last_return: float, solved_step: int | None = None, pruned: bool = False
) -> None:
    """Says that a run is complete, its last evaluation included, and from which step on its task was solved.

    Args:
        pruned: whether the run was stopped at this evaluation because other trials of its study did better.
    """
    said = {"step": step, "last_return": last_return, "solved_step": solved_step} | ({"pruned": True} if pruned else {})
    write_atomically(folder / FINISHED, json.dumps(said))


def finished(folder: Path) -> tuple[int, float] | None:
    """The last step and the final return of a run that is complete, or was pruned; None for one that is not."""
    try:
        said = json.loads((folder / FINISHED).read_text(encoding="utf-8"))
        return int(said["step"]), float(said["last_return"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def was_pruned(folder: Path) -> bool:
    """Whether a run that is `finished` was pruned."""
    try:
        return bool(json.loads((folder / FINISHED).read_text(encoding="utf-8"))["pruned"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


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
    said = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in new]
    return [f"{' '.join(what['overrides']) or path.parent.name}: {what['reason']}" for path, what in said]


def failure(folder: Path) -> str | None:
    """Why a run failed, as `mark_failed` wrote it down; None if it did not."""
    path = folder / FAILED
    return str(json.loads(path.read_text(encoding="utf-8"))["reason"]) if path.exists() else None


def wait_until_free(folder: Path, seconds: float) -> None:
    """Returns when nobody works in a folder, or after so many seconds."""
    until_s = time.monotonic() + seconds
    while (folder / ".lock").exists() and time.monotonic() < until_s:
        try:
            Lock(folder).release()
            return
        except UserError:
            time.sleep(0.2)
