"""Reads files: no link, no pipe, nothing vast.

A path that the user typed may be a link, as users link their own folders. A name that the program appends to it may
not: in a folder with another person's files, a link could lead to any file outside.
"""

import csv
import errno
import hashlib
import io
import json
import math
import os
import stat
from pathlib import Path
from typing import Any, TypeVar

MOST_BYTES = {  # maximum size of a file, by name or suffix
    ".yaml": 2**20,  # a run's settings have 200 values
    ".txt": 2**20,
    ".json": 2**26,  # a manifest has 150 bytes per segment; the spaces of a data set have two numbers per pixel
    ".csv": 2**31,  # ten million episodes
    ".mp4": 2**31,
    "replay_buffer.pt": 2**38,
}
MOST_OTHER_BYTES = 2**33  # weights
NO_LIMIT = math.inf  # for files that are read in pieces
Content = TypeVar("Content", list[Any], dict[str, Any])


def open_file(path: str | Path, most_bytes: float | None = None, inside: int = 1) -> io.BufferedReader:
    """Opens a file for reading.

    Args:
        most_bytes: maximum size; None looks it up in MOST_BYTES.
        inside: how many of the path's last names the program appended to the user's path; none of them may be a link.

    Raises:
        OSError: if it cannot be opened, is too large, or is a link, a folder, a pipe or a device.
    """
    path = Path(path)
    if most_bytes is None:
        most_bytes = MOST_BYTES.get(path.name, MOST_BYTES.get(path.suffix, MOST_OTHER_BYTES))
    descriptor = open_descriptor(path, os.O_RDONLY, inside)
    size = os.fstat(descriptor).st_size
    if size > most_bytes:
        os.close(descriptor)
        raise OSError(errno.EFBIG, f"{size:,} bytes, and at most {most_bytes:,} belong there", str(path))
    return os.fdopen(descriptor, "rb")


def open_descriptor(path: Path, flags: int, inside: int = 1) -> int:
    """Opens a regular file like `os.open`; see `open_file`."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        descriptor = _open(path, flags | os.O_NONBLOCK, inside)
    except OSError as error:
        is_link = any(level.is_symlink() for level in (path, *path.parents)[:inside])
        reason = "a link, and none is followed here" if is_link else error.strerror
        raise OSError(error.errno, reason, str(path)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a file", str(path))
    return descriptor


def _open(path: Path, flags: int, inside: int) -> int:
    if inside < 2:
        return os.open(path, flags | (os.O_NOFOLLOW if inside else 0), 0o666)
    folder = _open(path.parent, os.O_RDONLY | os.O_DIRECTORY, inside - 1)
    try:
        return os.open(path.name, flags | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    finally:
        os.close(folder)


def read_bytes(path: Path, most_bytes: float | None = None, inside: int = 1) -> bytes:
    """Reads a file whole; for arguments and errors see `open_file`."""
    with open_file(path, most_bytes, inside) as file:
        return file.read()


def read_text(path: Path, inside: int = 1) -> str:
    """Reads a text in UTF-8, with its line ends as they are.

    Raises:
        OSError: as `open_file`.
        ValueError: if it is not UTF-8.
    """
    return read_bytes(path, inside=inside).decode()


def read_json(path: Path, inside: int = 1) -> Any:
    """Reads a JSON file, whose numbers may be NaN (a run without an evaluation has no return) but not infinite.

    Raises:
        OSError: as `open_file`.
        ValueError: if it is not JSON of this kind.
    """

    def bounded(text: str) -> float:
        if math.isinf(number := float(text)):
            raise ValueError(f"{text[:40]} is not a finite number")
        return number

    try:
        return json.loads(read_bytes(path, inside=inside), parse_float=bounded, parse_constant=bounded)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def json_or(path: Path, default: Content) -> Content:
    """Reads a JSON file that may be missing, damaged or forged; returns `default` unless it has a value of its type."""
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return default
    return content if isinstance(content, type(default)) else default


def read_csv(path: Path, inside: int = 1) -> list[dict[str, str]]:
    """Reads the rows of a CSV file with a header, without an incomplete last row.

    Raises:
        OSError: as `open_file`.
        ValueError: if it is not UTF-8, or not a CSV.
    """
    text = read_text(path, inside=inside)
    try:
        return list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1], newline="")))
    except csv.Error as error:
        raise ValueError(str(error)) from None


def checksum(path: Path, most_bytes: float | None = None, inside: int = 1) -> str:
    """Returns the SHA-256 of a file, in hexadecimal; for arguments and errors see `open_file`."""
    with open_file(path, most_bytes, inside) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
