"""Writes files and folders that are whole or not there.

A new file or folder is written under an unpredictable name, `.<name>.<random>.part` plus the name's suffix, and then
renamed. Renaming replaces a link and does not follow it. A killed process leaves its partial file behind, and the next
process that writes the same name deletes it; the partial file of a running process is locked.
"""

import contextlib
import errno
import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from files.locks import lock
from files.reading import open_descriptor


class NewFile:
    """Writes a file that replaces an older one at its path only when it is complete and on the disk.

    Args:
        path: the final path, in an existing folder.

    Attributes:
        stream: the open file; the context manager returns it.
        partial: the file's path until it is complete, for libraries that write to a path.

    Raises:
        OSError: if it cannot be written, or there is a folder, a pipe or a device at its path.
    """

    def __init__(self, path: Path):
        self._path = path
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "not a file", str(path))
        self.partial, descriptor = _claim(path, is_folder=False)
        self.stream: BinaryIO = os.fdopen(descriptor, "w+b")

    def __enter__(self) -> BinaryIO:
        return self.stream

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.complete() if kind is None else self.discard()

    def complete(self) -> None:
        """Syncs and renames the file; deletes it if that fails."""
        try:
            self.stream.flush()
            os.fsync(self.stream.fileno())
            self.partial.replace(self._path)
        except BaseException:
            self.discard()
            raise
        self.stream.close()
        sync(self._path.parent)

    def discard(self) -> None:
        """Deletes the partial file."""
        with contextlib.suppress(OSError):
            self.partial.unlink()
        with contextlib.suppress(OSError):  # closing writes the last bytes, and the disk may be full
            self.stream.close()


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file whole; see `NewFile`."""
    with NewFile(path) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """Writes a text in UTF-8; see `NewFile`."""
    write_bytes(path, text.encode())


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields an empty folder; when the block ends, syncs its contents to the disk and renames it to `path`.

    If the block raises an exception, the folder is deleted.

    Raises:
        OSError: if it cannot be written, or there is a file or a filled folder at the path.
    """
    partial, descriptor = _claim(path, is_folder=True)
    try:
        yield partial
        for name, _, files in os.walk(partial):
            for file in files:
                sync(Path(name, file))
            sync(Path(name))
        partial.rename(path)
        sync(path.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _claim(path: Path, is_folder: bool) -> tuple[Path, int]:
    """Creates and locks the partial file or folder for a path; returns its path and its descriptor."""
    _remove_abandoned(path)
    try:
        while True:
            partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part{path.suffix}")
            if is_folder:
                partial.mkdir()
                descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            else:
                descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
            if _is_kept(partial, descriptor):
                return partial, descriptor
            os.close(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _is_kept(partial: Path, descriptor: int) -> bool:
    """Locks a partial file or folder; returns False if another process deleted it as abandoned before that."""
    try:
        lock(descriptor)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where none is deleted as abandoned
        pass
    return partial.exists()


def _remove_abandoned(path: Path) -> None:
    """Deletes the partial files and folders that killed processes have left for this path."""
    for part in path.parent.glob(glob.escape(f".{path.name}.") + "[0-9a-f]" * 8 + glob.escape(f".part{path.suffix}")):
        is_folder = part.is_dir()
        with contextlib.suppress(OSError):  # locked, so it is being written
            descriptor = os.open(part, (os.O_RDONLY if is_folder else os.O_RDWR) | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                lock(descriptor)
                shutil.rmtree(part) if is_folder else part.unlink()
            finally:
                os.close(descriptor)


def open_in_place(path: Path, flags: int) -> int:
    """Opens a file that is modified in place, such as a log; `flags` are those of `os.open`.

    Raises:
        OSError: also for a symbolic link, and for a file with a second hard link, as both names would change.
    """
    descriptor = open_descriptor(path, flags)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EMLINK, "it has a second name (a hard link), which would change too", str(path))
    return descriptor


def append_file(path: Path) -> BinaryIO:
    """Opens a file for appending; creates it if it does not exist. For errors see `open_in_place`."""
    return os.fdopen(open_in_place(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def truncate(path: Path, size: int) -> None:
    """Cuts a file to its first `size` bytes. For errors see `open_in_place`."""
    with os.fdopen(open_in_place(path, os.O_WRONLY), "ab") as file:
        file.truncate(size)


def sync(path: Path) -> None:
    """Flushes a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Creates a folder in an existing one, unless it exists already.

    Raises:
        OSError: if it cannot be created, or is a link.
    """
    path.mkdir(exist_ok=True)
    if path.is_symlink():
        raise OSError(errno.ELOOP, "a link, and none is followed here", str(path))


def remove_folder(path: Path) -> None:
    """Deletes a folder; renames it first, so that a half-deleted folder never has its name."""
    shutil.rmtree(hide(path), ignore_errors=True)


def hide(path: Path) -> Path:
    """Renames a folder before its deletion, deleting any leftover of a killed process; returns the new path."""
    gone = f".{path.name}.gone"
    shutil.rmtree(path.with_name(gone), ignore_errors=True)
    return rename(path, gone)


def rename(path: Path, name: str) -> Path:
    """Renames a file or a folder within its parent folder; returns the new path."""
    return path.rename(path.with_name(name))
