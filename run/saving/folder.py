"""A run's folder and its lock. Other files in it say whether the run has finished or failed."""

import contextlib
import errno
import json
import os
import shlex
import socket
import tempfile
import time
from pathlib import Path

from files.links import refuse_links
from files.locks import lock
from files.reading import json_or
from files.writing import open_in_place, write_text
from utils import UserError, one_line

FINISHED, FAILED = "finished.json", "failed.json"
LOGS = ("train.csv", "eval.csv")


def claim(folder: Path, key: str, may_exist: bool = False, may_continue: bool = False) -> Path:
    """Creates an output folder for one run or sweep; if its name is taken, `_2`, `_3`, … is appended.

    Args:
        may_exist: use the folder even if it exists. A run in it is still never overwritten.
        may_continue: the folder may hold a run.

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
            with contextlib.suppress(FileExistsError):
                candidate.mkdir()
                return candidate
    except OSError as error:
        raise UserError(f"{key}={folder}: the folder cannot be created or written ({error.strerror})") from None
    raise UserError(f"{key}={folder}: too many folders of that name")


def refuse_used(folder: Path, names: tuple[str, ...] = ("config.yaml", *LOGS)) -> None:
    """Raises UserError if the folder holds a run, which is recognised by files with these names."""
    if not any((folder / name).exists() for name in names):
        return
    hint = ""
    if any(folder.glob("checkpoints/step_*")):
        hint = f", or continue it with {shlex.quote(f'resume={folder}')}"
    elif not any((folder / name).exists() for name in LOGS):
        hint = ", or add resume=auto: it ended before its first step, and begins anew"
    raise UserError(f"hydra.run.dir={folder}: a run is there already; choose another folder{hint}")


class Lock:
    """Lets only one process work in a run's folder. The operating system releases it when the process ends.

    Raises:
        UserError: if another process holds it, or the folder cannot be written or has a link in it.
    """

    def __init__(self, folder: Path):
        refuse_links(folder)
        self._folder = folder
        path = folder / ".lock"
        try:
            descriptor = open_in_place(path, os.O_RDWR | os.O_CREAT)
        except IsADirectoryError:
            raise UserError(f"{path}: a folder, where the lock's file has to be; remove it") from None
        except OSError as error:
            raise UserError(f"{folder}: the folder cannot be written ({error.strerror})") from None
        try:
            lock(descriptor)
        except BlockingIOError:
            owner = one_line(os.pread(descriptor, 200, 0).decode(errors="replace"))
            os.close(descriptor)
            worker = f"process {owner}" if owner else "another process"  # which has not written its number yet
            raise UserError(f"{folder}: {worker} is working in this folder") from None
        except OSError as error:  # a file system without locks
            print(f"{folder}: nothing keeps a second process out of it ({error.strerror})")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        self._folder_descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)  # held, so that its inode is not reused
        self._open_descriptors = [descriptor, self._folder_descriptor]

    def is_in_place(self) -> bool:
        """Returns whether the folder has been neither moved nor deleted since it was locked."""
        try:
            return os.path.samestat(self._folder.stat(), os.fstat(self._folder_descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # a file server that does not answer may recover
            return True

    def require_in_place(self) -> None:
        """Raises FileNotFoundError unless `is_in_place`; another run may have the folder's name by now."""
        if not self.is_in_place():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._folder))

    def release(self) -> None:
        """Releases the lock; a second call does nothing."""
        while self._open_descriptors:  # close each only once: its number may be reused afterwards
            with contextlib.suppress(OSError):
                os.close(self._open_descriptors.pop())


def wait_until_free(folder: Path, seconds: float) -> None:
    """Waits until no process holds the folder's lock, but at most `seconds`."""
    deadline_s = time.monotonic() + seconds
    while (folder / ".lock").exists() and time.monotonic() < deadline_s:
        try:
            Lock(folder).release()
            return
        except UserError:
            time.sleep(0.2)


def mark_finished(
    folder: Path, step: int, last_return: float, solved_step: int | None = None, pruned: bool = False
) -> None:
    """Records that a run is complete, including its last evaluation, or was pruned after its last evaluation.

    Args:
        solved_step: step of the first evaluation that solved the task; None if none did.
    """
    content = {"step": step, "last_return": last_return, "solved_step": solved_step}
    write_text(folder / FINISHED, json.dumps(content | ({"pruned": True} if pruned else {})))
    unmark_failed(folder)  # another command may have failed meanwhile, because this run was in its folder


def finished(folder: Path, num_train_steps: int = 0, pruned_too: bool = True) -> tuple[int, float] | None:
    """Returns the last step and the final return of a run that is complete or was pruned; None for any other run.

    A run with fewer than `num_train_steps` steps is not complete. With `pruned_too`, a pruned run may have fewer.
    """
    content = json_or(folder / FINISHED, {})
    try:
        step, last_return = int(content["step"]), float(content["last_return"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    return (step, last_return) if step >= num_train_steps or (pruned_too and was_pruned(folder)) else None


def was_pruned(folder: Path) -> bool:
    """Returns whether the run was pruned."""
    return bool(json_or(folder / FINISHED, {}).get("pruned"))


def mark_failed(folder: Path, overrides: list[str], reason: str) -> None:
    """Records why a run of a sweep failed; the run deletes the record with `unmark_failed` when it starts again."""
    write_text(folder / FAILED, json.dumps({"overrides": overrides, "reason": reason}))


def unmark_failed(folder: Path) -> None:
    (folder / FAILED).unlink(missing_ok=True)


def failure(folder: Path) -> str | None:
    """Returns why a run failed; None if it did not."""
    path = folder / FAILED
    return str(json_or(path, {}).get("reason", "it is not recorded why")) if path.exists() else None


def files_below(folder: Path, name: str) -> list[Path]:
    """Returns the files of that name in a folder and its subfolders; these may vanish meanwhile, as checkpoints do."""
    return sorted(Path(parent, name) for parent, _, names in os.walk(folder) if name in names)


def failures(sweep: Path) -> dict[Path, int]:
    """Returns the records of failed runs in a sweep's folder, each with the time when it was written (ns)."""
    return {path: path.lstat().st_mtime_ns for path in files_below(sweep, FAILED)}


def new_failures(sweep: Path, before: dict[Path, int]) -> list[str]:
    """Returns a line for each failure that is not in `before`, an earlier result of `failures`: overrides, reason."""
    new = [path for path, written_ns in failures(sweep).items() if before.get(path) != written_ns]
    overrides = [json_or(path, {}).get("overrides") for path in new]
    names = [" ".join(map(str, texts)) if isinstance(texts, list) else "" for texts in overrides]
    return [f"{name or path.parent.name}: {failure(path.parent)}" for name, path in zip(names, new, strict=True)]
