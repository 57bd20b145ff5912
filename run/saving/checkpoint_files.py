"""A part of a checkpoint in a file of its own, written with its checksum."""

import errno
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from utils import sync


class _Hashed:
    """A file that keeps its checksum, and the error that torch would hide behind one of its own."""

    def __init__(self, file: Any):
        self._file = file
        self.digest = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            written = self._file.write(data)
        except OSError as error:
            self.error = error
            raise
        self.digest.update(data)
        return written

    def flush(self) -> None:
        self._file.flush()


def write_state(state: Any, path: Path) -> str:
    """Writes and syncs a state of tensors and plain values; returns its checksum."""
    with path.open("wb") as file:
        hashed = _Hashed(file)
        try:
            torch.save(state, hashed)  # type: ignore[arg-type]  # all it asks for is write
            file.flush()
        except RuntimeError:
            if hashed.error is None:
                raise
            raise hashed.error from None
    sync(path)
    return hashed.digest.hexdigest()


def write_file(write: Callable[[Path], object], path: Path) -> str | None:
    """Has a function write a file, or none, and syncs it; returns its checksum."""
    try:
        write(path)
    except RuntimeError as error:  # torch's own file writer: a full disk
        raise OSError(errno.EIO, str(error).splitlines()[0]) from None
    if not path.exists():
        return None
    sync(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
