"""Checkpoints in a run's folder: what they consist of, and how they are found, verified and read.

    checkpoints/step_20000/manifest.json     format, step, identity of the run, checksum of every file
                           agent.pt          state of the agent
                           run.pt            state of everything else
                           policy.pt         the policy alone
                           replay_buffer.pt  state of a replay buffer that is no ReplayBuffer
    checkpoints/buffer/                      rows of a ReplayBuffer (replay/on_disk.py), shared by the checkpoints
    checkpoints/preloaded/                   rows that `preload_share` draws from, also shared

Files are loaded with `weights_only=True`: they hold tensors and plain values, and no code.
checkpoint_writer.py writes them, so that a crash at any moment leaves the older checkpoints intact.
"""

import contextlib
import hashlib
import json
import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

from files.reading import checksum, read_json
from files.tensors import load_plain
from replay import on_disk
from replay.on_disk import Segment
from run.memory import WeightLimit, limit_by_file
from utils import UserError, one_line, require_count

FORMAT = 2
FOLDER, MANIFEST, BUFFER = "checkpoints", "manifest.json", "buffer"
PRELOADED = "preloaded"  # both a key of the manifest and the folder of these rows
RINGS = ("rows", "frames")
SEGMENT_KEYS = {field.name for field in fields(Segment)}


class BrokenError(Exception):
    """A checkpoint is damaged; the message says how."""


class AllDamagedError(UserError):
    """All checkpoints of a run are damaged; `without_buffer` is the newest one damaged only in its replay buffer."""

    def __init__(self, message: str, without_buffer: Path | None):
        super().__init__(message)
        self.without_buffer = without_buffer


class Checkpoint:
    """Reads the checkpoint in a folder `step_<number>`.

    Attributes:
        step: environment steps at which it was saved.
        segments, preloaded: the files with the rows of the replay buffer, and with the preloaded rows.

    Raises:
        BrokenError: if its manifest is damaged.
        UserError: if it has another format.
    """

    def __init__(self, path: Path):
        self.path = path
        manifest = _read_manifest(path)
        # The manifest's own checksum detects accidents only, as a forger can compute it too. So every value is checked.
        try:
            identity, checksums = manifest.get("identity"), manifest.get("parts")
            if not isinstance(identity, dict) or not isinstance(checksums, dict):
                raise ValueError("identity and parts have to be objects")
            if not all(isinstance(checksum, str) for checksum in checksums.values()):
                raise ValueError("a checksum is not a string")
            self._identity: dict[str, Any] = identity
            self._checksums: dict[str, str] = checksums
            numbers = sum(require_count(identity.get(name, 0), name) for name in ("obs_dim", "action_dim"))
            self._most_row_bytes = 2**16 + 64 * numbers  # a ReplayBuffer's rows have 8 per number; others may have more
            self.step = require_count(manifest.get("step"), "step")
            if path.name != f"step_{self.step}":
                raise ValueError(f"it is the manifest of step {self.step}")
            self.segments = _segments(manifest.get("segments"))
            self.preloaded = _segments(manifest.get(PRELOADED, []))
        except ValueError as error:
            raise BrokenError(f"{MANIFEST}: {error}") from None

    def require_identity(self, identity: dict[str, Any]) -> None:
        """Raises UserError, naming the first difference, unless a run with this identity saved the checkpoint."""
        for key, expected in identity.items():
            saved = self._identity.get(key)
            if saved != expected:
                raise UserError(f"{self.path}: a checkpoint of {key}={saved}, not of {key}={expected}")

    def has(self, name: str) -> bool:
        """Returns whether it contains `<name>.pt`."""
        return name in self._checksums

    def verify(self, *names: str, buffer: bool = False) -> None:
        """Compares files, named without `.pt`, with their checksums; with `buffer` also the replay buffer and the
        preloaded rows. Raises BrokenError if one is missing or has changed."""
        if buffer and self.has("replay_buffer"):
            names = (*names, "replay_buffer")
        for name in names:
            try:
                sha256 = checksum(self._file(name))
            except OSError as error:
                raise BrokenError(f"{name}.pt: {error.strerror}") from None
            if sha256 != self._checksums.get(name):
                raise BrokenError(f"{name}.pt has changed since it was written")
        if buffer and (fault := self._fault(BUFFER, self.segments) or self._fault(PRELOADED, self.preloaded)):
            raise BrokenError(fault)

    def load(self, name: str) -> Any:
        """Returns the state in `<name>.pt`, on the CPU; refuses anything but tensors and plain values."""
        path = self._file(name)
        try:
            return load_plain(path)
        except pickle.UnpicklingError:
            raise UserError(f"{path}: refused, as it holds more than tensors and plain values") from None
        except Exception as error:  # a damaged file can make torch's reader and unpickler raise anything
            raise UserError(f"{path}: cannot be read ({type(error).__name__})") from None

    def load_rows(self, buffer: Any, state: dict[str, Any]) -> None:
        """Reads the replay buffer's rows into `buffer`, whose counters were saved as `state`."""
        on_disk.read(self.path.parent / BUFFER, self.segments, buffer, state)

    def load_preloaded(self, buffer: Any, num_added: int) -> None:
        """Reads the preloaded rows, of which there are `num_added`, into `buffer`."""
        on_disk.read(self.path.parent / PRELOADED, self.preloaded, buffer, {"num_added": num_added})

    def drop_damaged(self) -> bool:
        """Treats the checkpoint as saved without its replay buffer, or its preloaded rows, where they are damaged.

        Returns:
            Whether rows in segments were dropped.
        """
        if self._fault(PRELOADED, self.preloaded):
            self.preloaded = []
        if self.has("replay_buffer"):
            try:
                self.verify("replay_buffer")
            except BrokenError:
                del self._checksums["replay_buffer"]
        is_lost = self._fault(BUFFER, self.segments) is not None
        if is_lost:
            self.segments = []
        return is_lost

    def _fault(self, folder: str, segments: list[Segment]) -> str | None:
        return on_disk.fault(self.path.parent / folder, segments, self._most_row_bytes)

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.pt"


def newest_first(run_folder: Path) -> list[Path]:
    """Returns the folders of a run's checkpoints, damaged ones included, the newest first."""
    numbers = {path: path.name.removeprefix("step_") for path in (run_folder / FOLDER).glob("step_*")}
    numbered = [path for path, number in numbers.items() if number.isascii() and number.isdecimal()]
    return sorted(numbered, key=lambda path: int(numbers[path]), reverse=True)


def newest_intact(
    run_folder: Path, *names: str, buffer: bool = False, identity: dict[str, Any] | None = None
) -> tuple[Checkpoint, list[Path]]:
    """Finds the newest intact checkpoint of a run. Prints a line about every damaged one that it passes over.

    For `names` and `buffer` see `Checkpoint.verify`, for `identity` see `Checkpoint.require_identity`.

    Returns:
        The checkpoint, and the folders of the newer ones, which are damaged.

    Raises:
        AllDamagedError: if all are damaged.
        UserError: if there is none, or it has another identity or format.
    """
    broken: list[Path] = []
    without_buffer = None
    for path in newest_first(run_folder):
        try:
            checkpoint = Checkpoint(path)
            if identity is not None:
                checkpoint.require_identity(identity)
            checkpoint.verify(*names)
            without_buffer = without_buffer or path
            checkpoint.verify(buffer=buffer)
        except BrokenError as error:
            print(f"{path}: {error}; going back to the checkpoint before it", flush=True)
            broken.append(path)
        else:
            return checkpoint, broken
    if broken:
        raise AllDamagedError(f"{run_folder}: all checkpoints are damaged", without_buffer)
    raise UserError(f"{run_folder}: there is no checkpoint in it")


def weight_limit(folder: Path) -> WeightLimit:
    """Returns the limit for an agent read from a run's checkpoint: no more weights than the largest file holds."""
    sizes = [0]
    for parent in newest_first(folder):
        with contextlib.suppress(FileNotFoundError):  # none is complete, or the run has deleted it since
            sizes.append((parent / "agent.pt").stat().st_size)
    return limit_by_file(max(sizes), str(folder))


def manifest_checksum(manifest: dict[str, Any]) -> str:
    """Returns the checksum that is stored with a manifest."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Reads a checkpoint's manifest; its checksum and its format are right, its values are not checked yet."""
    try:
        content = read_json(folder / MANIFEST)
        manifest, saved_format = content["manifest"], content["manifest"]["format"]
        is_unchanged = content["sha256"] == manifest_checksum(manifest)
    except OSError as error:
        raise BrokenError(f"{MANIFEST}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise BrokenError(f"{MANIFEST} is no manifest") from None
    if not is_unchanged:
        raise BrokenError(f"{MANIFEST} has changed since it was written")
    if saved_format != FORMAT:
        raise UserError(f"{folder}: a checkpoint of format {one_line(str(saved_format))}; this version reads {FORMAT}")
    return manifest


def _segments(items: Any) -> list[Segment]:
    """Builds the segments that a manifest lists; those of one ring have to follow each other without a gap.

    Raises:
        ValueError: if they do not, or a value has the wrong type.
    """
    if not isinstance(items, list):
        raise ValueError("segments have to be a list")
    segments: list[Segment] = []
    stops: dict[str, int] = {}  # of each ring's newest segment so far
    for item in items:
        if not isinstance(item, dict) or item.keys() | {"ring"} != SEGMENT_KEYS:
            raise ValueError("a segment has missing or unknown keys")
        segment = Segment(**item)
        if segment.ring not in RINGS or not isinstance(segment.sha256, str):
            raise ValueError("a segment has an unknown ring or a checksum that is not a string")
        start, stop = require_count(segment.start, "start"), require_count(segment.stop, "stop")
        previous = stops.get(segment.ring)
        if start >= stop or previous not in (None, start):
            raise ValueError(f"a segment from {start} to {stop} cannot follow one to {previous}")
        stops[segment.ring] = stop
        segments.append(segment)
    return segments
