"""Stops a test's changes of the disk at any operation, as SIGKILL would, without a separate process."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

CHANGES = {"os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Killed(BaseException):
    """Raised instead of the operation at which the process dies, and of every later one: nothing is cleaned up."""


class _Disk:
    left: int | None = None  # operations that still succeed; None while nothing is counted
    written: str | None = None  # the file that the last operation opened for writing; None after any other one


@cache  # an audit hook cannot be removed
def _hook() -> None:
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _Disk.left is None:
        return
    opens = event == "open" and not isinstance(arguments[0], int) and bool(arguments[2] & WRITES)
    if not opens and event not in CHANGES:
        return
    if _Disk.left <= 0:
        raise Killed
    _Disk.left -= 1
    _Disk.written = os.fspath(arguments[0]) if opens else None


@contextmanager
def killed_after(operations: int | None, folder: Path, share: float) -> Iterator[None]:
    """In its block, only the first `operations` changes of the disk succeed; every later one raises Killed.

    Args:
        operations: how many openings for writing, renames, deletions, … succeed; None for all.
        folder: where the changes are made.
        share: how much of a file being written at that moment is left on the disk.
    """
    _hook()
    _Disk.left, _Disk.written = operations, None
    try:
        yield
    except Killed:
        _Disk.left = None
        if _Disk.written:  # only the name is known if it was opened relative to a descriptor
            written = max(folder.rglob(Path(_Disk.written).name), key=lambda path: path.stat().st_mtime_ns)
            os.truncate(written, int(share * written.stat().st_size))
        raise
    finally:
        _Disk.left = None
