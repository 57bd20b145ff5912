"""Ends what a test does to the disk at any of its operations, as SIGKILL would, without a process of its own."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHANGES = {"os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Killed(BaseException):
    """Raised by the operation before which the process died, and by every later one: nothing can be cleaned up."""


class _Disk:
    """Counts what this process changes on the disk.

    Attributes:
        left: operations until the process dies; None while nothing is counted.
        written: the name of the file that the last operation opened for writing; None after any other operation.
    """

    def __init__(self) -> None:
        self.left: int | None = None
        self.written: str | None = None
        self._is_hooked = False

    def hook(self) -> None:
        if not self._is_hooked:  # an audit hook stays for good
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
    """Within it, the operation on the disk after so many raises Killed, and so does every later one.

    Args:
        operations: opened files, renames, deletions, … that succeed; None for all.
        folder: in which they are made.
        share: of the file that is being written at that moment, how much is on the disk.
    """
    _disk.hook()
    _disk.left, _disk.written = operations, None
    try:
        yield
    except Killed:
        _disk.left = None
        if _disk.written:  # only its name, as it may have been opened relative to a folder's descriptor
            written = max(folder.rglob(Path(_disk.written).name), key=lambda path: path.stat().st_mtime_ns)
            os.truncate(written, int(share * written.stat().st_size))
        raise
    finally:
        _disk.left = None
