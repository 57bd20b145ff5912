"""Stops a test's changes of the disk at any operation, as SIGKILL would, without a separate process."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHANGES = {"os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Killed(BaseException):
    """Raised instead of the operation at which the process dies, and of every later one: nothing is cleaned up."""


class _Disk:
    """Counts this process's changes of the disk.

    Attributes:
        left: operations that still succeed; None while nothing is counted.
        written: the name of the file that the last operation opened for writing; None after any other operation.
    """

    def __init__(self) -> None:
        self.left: int | None = None
        self.written: str | None = None
        self._is_hooked = False

    def hook(self) -> None:
        if not self._is_hooked:  # an audit hook cannot be removed
            sys.addaudithook(self._audit)
            self._is_hooked = True

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.left is None:
            return
        opens = event == "open" and not isinstance(arguments[0], int) and bool(arguments[2] & WRITES)
        if not opens and event not in CHANGES:
            return
        if self.left <= 0:
            raise Killed
        self.left -= 1
        self.written = os.fspath(arguments[0]) if opens else None


_disk = _Disk()


@contextmanager
def killed_after(operations: int | None, folder: Path, share: float) -> Iterator[None]:
    """In its block, only the first `operations` changes of the disk succeed; every later one raises Killed.

    Args:
        operations: how many openings for writing, renames, deletions, … succeed; None for all.
        folder: where the changes are made.
        share: how much of a file being written at that moment is left on the disk.
    """
    _disk.hook()
    _disk.left, _disk.written = operations, None
    try:
        yield
    except Killed:
        _disk.left = None
        if _disk.written:  # only the name is known if it was opened relative to a descriptor
            written = max(folder.rglob(Path(_disk.written).name), key=lambda path: path.stat().st_mtime_ns)
            os.truncate(written, int(share * written.stat().st_size))
        raise
    finally:
        _disk.left = None
