"""A replay buffer on disk: immutable files of packed rows, keyed by absolute transition number.

`000000000000-000000010000.rows` holds the first 10 000 transitions ever added, as raw float32. A checkpoint adds one
file with what is new and lists those that make up its ring: its cost grows with what is new, not with what is stored.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from utils import open_file, require_count, sync

READ_BYTES = 2**23


@dataclass(frozen=True)
class Segment:
    """Transitions [start, stop) and the checksum of their rows."""

    start: int
    stop: int
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.start:012d}-{self.stop:012d}.rows"


def extend(folder: Path, segments: list[Segment], buffer: Any) -> list[Segment]:
    """Writes what was added since the last segment; returns the segments that the ring consists of now.

    Args:
        folder: of the files.
        segments: those already there, oldest first.
        buffer: has `num_added`, `chunks(start, stop)` and a length.
    """
    oldest = buffer.num_added - len(buffer)
    start = max(segments[-1].stop if segments else 0, oldest)
    kept = [segment for segment in segments if segment.stop > oldest]
    return [*kept, _write(folder, start, buffer)] if start < buffer.num_added else kept


def _write(folder: Path, start: int, buffer: Any) -> Segment:
    digest = hashlib.sha256()
    partial = folder / ".part.rows"
    with partial.open("wb") as file:
        for rows in buffer.chunks(start, buffer.num_added):
            digest.update(rows.data)
            file.write(rows.data)
    sync(partial)
    segment = Segment(start, buffer.num_added, digest.hexdigest())
    partial.replace(folder / segment.name)
    sync(folder)
    return segment


def fault(folder: Path, segments: Iterable[Segment]) -> str | None:
    """What is wrong with the first file that is not whole; None if all are."""
    for segment in segments:
        try:
            with open_file(folder / segment.name) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != segment.sha256:
                    return f"{folder.name}/{segment.name} has changed since it was written"
        except OSError as error:
            return f"{folder.name}/{segment.name}: {error.strerror}"
    return None


def read(folder: Path, segments: Iterable[Segment], buffer: Any, num_added: int) -> None:
    """Puts the newest rows, of `num_added` ever, where they belong in the buffer's ring.

    Args:
        buffer: has `capacity`, `row_width` and `put_chunk(start, rows)`.

    Raises:
        ValueError: if the segments do not hold these rows.
    """
    row_bytes = 4 * buffer.row_width
    segments = list(segments)
    oldest = max(0, require_count(num_added, "num_added") - buffer.capacity)
    if not segments or segments[0].start > oldest or segments[-1].stop != num_added:
        raise ValueError(f"the segments do not hold transitions {oldest} to {num_added}")
    for segment in segments:
        size, expected = (folder / segment.name).stat().st_size, (segment.stop - segment.start) * row_bytes
        if size != expected:
            raise ValueError(f"{segment.name} has {size} bytes, and its rows {expected}")
        start = max(segment.start, num_added - buffer.capacity)
        with (folder / segment.name).open("rb") as file:
            file.seek((start - segment.start) * row_bytes)
            while data := file.read(max(1, READ_BYTES // row_bytes) * row_bytes):
                rows = np.frombuffer(data, np.float32).reshape(-1, buffer.row_width)
                buffer.put_chunk(start, rows)
                start += len(rows)


def remove_unlisted(folder: Path, listed: Iterable[Segment]) -> None:
    """Deletes the files that no checkpoint needs."""
    names = {segment.name for segment in listed}
    for path in folder.glob("*.rows"):
        if path.name not in names:
            path.unlink(missing_ok=True)
