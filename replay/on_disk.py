"""A replay buffer on disk: immutable files of a ring's rows, named by the rows' numbers.

`000000000000-000000010000.rows` holds the first 10 000 transitions ever added, as raw float32; a buffer of images also
has `.frames`. A checkpoint writes one file per ring with the new rows and lists the files that make up the buffer, so
its cost grows with the new rows, not with the stored ones.
"""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from files.reading import NO_LIMIT, checksum, open_file
from files.writing import NewFile

READ_BYTES = 2**23


@dataclass(frozen=True)
class Segment:
    """Rows [start, stop) of one of a buffer's rings, and their checksum."""

    start: int
    stop: int
    sha256: str
    ring: str = "rows"

    def plain(self) -> dict[str, Any]:
        """Returns plain values for a manifest; `Segment(**segment.plain())` equals the segment."""
        return {key: value for key, value in vars(self).items() if key != "ring" or value != "rows"}

    @property
    def num_rows(self) -> int:
        return self.stop - self.start

    @property
    def name(self) -> str:
        return f"{self.start:012d}-{self.stop:012d}.{self.ring}"


def extend(folder: Path, segments: list[Segment], buffer: Any) -> list[Segment]:
    """Writes the rows that were added since the last segment; returns the segments that hold the buffer's rows.

    Args:
        segments: the existing segments, oldest first.
        buffer: has `rings`, each with `num_added`, `chunks(start, stop)` and a length.
    """
    current = []
    for name, ring in buffer.rings.items():
        existing = of_ring(segments, name)
        oldest = ring.num_added - len(ring)
        start = max(existing[-1].stop if existing else 0, oldest)
        current += [segment for segment in existing if segment.stop > oldest]
        current += [_write(folder, start, ring, name)] if start < ring.num_added else []
    return current


def of_ring(segments: Iterable[Segment], name: str) -> list[Segment]:
    """Returns the segments of one ring."""
    return [segment for segment in segments if segment.ring == name]


def _write(folder: Path, start: int, ring: Any, name: str) -> Segment:
    digest = hashlib.sha256()
    stop = ring.num_added
    with NewFile(folder / Segment(start, stop, "", name).name) as file:
        for rows in ring.chunks(start, stop):
            digest.update(rows.data)
            file.write(rows.data)
    return Segment(start, stop, digest.hexdigest(), name)


def fault(folder: Path, segments: Iterable[Segment], row_bytes: int) -> str | None:
    """Describes the fault of the first damaged file; returns None if all are intact.

    Args:
        row_bytes: the largest size of a row; a file that is larger than its rows can be is not read.
    """
    for segment in segments:
        try:
            if checksum(folder / segment.name, segment.num_rows * row_bytes) != segment.sha256:
                return f"{folder.name}/{segment.name} has changed since it was written"
        except OSError as error:
            return f"{folder.name}/{segment.name}: {error.strerror}"
    return None


def read(folder: Path, segments: Iterable[Segment], buffer: Any, state: dict[str, Any]) -> None:
    """Reads the rows of a buffer's rings; raises ValueError if the segments do not contain those of this state.

    Args:
        buffer: has `rings`, each with `capacity`, `row_width` and `put_chunk(start, rows)`, and `spans(state)`.
        state: the buffer's state_dict, saved with these segments.
    """
    segments = list(segments)
    for name, ring in buffer.rings.items():
        found = of_ring(segments, name)
        _read(folder, found, ring, max(found[0].start, found[-1].stop - ring.capacity), found[-1].stop)


def _read(folder: Path, segments: list[Segment], ring: Any, oldest: int, stop: int) -> None:
    bytes_per_row = 4 * ring.row_width
    if not segments or segments[0].start > oldest or segments[-1].stop != stop:
        raise ValueError(f"the segments do not hold transitions {oldest} to {stop}")
    for segment in segments:
        start = max(segment.start, stop - ring.capacity)
        with open_file(folder / segment.name, NO_LIMIT) as file:
            size, expected = file.seek(0, os.SEEK_END), segment.num_rows * bytes_per_row
            if size != expected:
                raise ValueError(f"{segment.name} has {size} bytes, and its rows {expected}")
            file.seek((start - segment.start) * bytes_per_row)
            while data := file.read(max(1, READ_BYTES // bytes_per_row) * bytes_per_row):
                rows = np.frombuffer(data, np.float32).reshape(-1, ring.row_width)
                ring.put_chunk(start, rows)
                start += len(rows)


def remove_unlisted(folder: Path, listed: Iterable[Segment]) -> None:
    """Deletes the files of rows and frames that no checkpoint lists, and partial files of killed processes."""
    names = {segment.name for segment in listed}
    for path in [*folder.glob("*.rows"), *folder.glob("*.frames")]:
        if path.name not in names:
            path.unlink(missing_ok=True)
