"""Writes checkpoints and deletes old ones. For the layout see run/saving/checkpoint.py.

A checkpoint is written into a hidden folder, synced to the disk, and renamed only when it is complete.
"""

import contextlib
import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from replay import on_disk
from run.saving import checkpoint
from run.saving.checkpoint import BUFFER, FOLDER, MANIFEST, PRELOADED, BrokenError, Checkpoint
from utils import UserError, sync


class CheckpointWriter:
    """Writes a run's checkpoints and deletes old ones.

    Args:
        keep: number of checkpoints to keep.
        identity: plain values that a run has to match to load a checkpoint.
        continued_from: the checkpoint that the run continues from; None for a new run.
        broken: damaged checkpoints, to be deleted once another is written.

    Attributes:
        last_step: the step of the newest checkpoint that can be loaded; None if there is none.
    """

    def __init__(
        self,
        run_folder: Path,
        keep: int,
        identity: dict[str, Any],
        continued_from: Checkpoint | None = None,
        broken: Collection[Path] = (),
    ):
        self._folder = run_folder / FOLDER
        self._keep = keep
        self._identity = identity
        self._segments = continued_from.segments if continued_from else []
        self._preloaded = continued_from.preloaded if continued_from else []
        self._broken = broken
        self.last_step: int | None = continued_from.step if continued_from else None

    def path(self, step: int) -> Path:
        """Returns the folder of the checkpoint of a step."""
        return self._folder / f"step_{step}"

    def save(
        self,
        step: int,
        states: dict[str, Any],
        save_policy: Callable[[Path], None],
        buffer: Any | None,
        preloaded: Any | None = None,
    ) -> None:
        """Writes a checkpoint. The older ones are untouched until it is complete and on the disk.

        Args:
            step: environment steps so far.
            states: tensors and plain values, by the name of their file.
            save_policy: writes the policy alone into a file, if it can be saved alone.
            buffer: the ReplayBuffer whose new rows are saved (see replay.on_disk.extend); None leaves it out.
            preloaded: the ReplayBuffer with preloaded rows; None leaves it out.

        Raises:
            OSError: if it cannot be written; then nothing of it is left on the disk.
        """
        target = self.path(step)
        partial = target.with_name(f".{target.name}.part")
        try:
            self._folder.mkdir(exist_ok=True)  # without parents: a run's folder that the user deleted stays deleted
            (self._folder / BUFFER).mkdir(exist_ok=True)
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            # New rows go into folders that all checkpoints share; they are not read until a manifest lists them.
            segments = on_disk.extend(self._folder / BUFFER, self._segments, buffer) if buffer is not None else []
            if preloaded is not None:
                (self._folder / PRELOADED).mkdir(exist_ok=True)
                self._preloaded = on_disk.extend(self._folder / PRELOADED, self._preloaded, preloaded)
            checksums = {name: write_state(state, partial / f"{name}.pt") for name, state in states.items()}
            if policy_checksum := write_file(save_policy, partial / "policy.pt"):
                checksums["policy"] = policy_checksum
            manifest = {
                "format": checkpoint.FORMAT,
                "step": step,
                "identity": self._identity,
                "parts": checksums,
                "segments": [segment.plain() for segment in segments],
            }
            if preloaded is not None:
                manifest[PRELOADED] = [segment.plain() for segment in self._preloaded]
            content = {"sha256": checkpoint.manifest_checksum(manifest), "manifest": manifest}
            (partial / MANIFEST).write_text(json.dumps(content, indent=1), encoding="utf-8")
            # Everything is on the disk before the folder gets the name of a checkpoint.
            sync(partial / MANIFEST)
            sync(partial)
            if target.exists():  # a damaged checkpoint of this step
                _set_aside(target)
            partial.replace(target)
            sync(self._folder)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            self._remove_unlisted_rows()
            raise
        self._segments, self.last_step = segments, step
        with contextlib.suppress(OSError):  # the next checkpoint tries again
            self._remove_old()

    def _remove_old(self) -> None:
        broken = set(self._broken) - {self.path(self.last_step or 0)}  # this one has just been written again
        folders = checkpoint.newest_first(self._folder.parent)
        kept = [path for path in folders if path not in broken][: self._keep]
        for path in folders:
            if path not in kept:
                _set_aside(path)
        for path in self._folder.glob(".step_*"):
            shutil.rmtree(path, ignore_errors=True)
        self._broken = ()
        self._remove_unlisted_rows()

    def _remove_unlisted_rows(self) -> None:
        """Deletes the files of rows that no checkpoint lists any more."""
        listed = list(self._segments)
        for path in checkpoint.newest_first(self._folder.parent):
            with contextlib.suppress(BrokenError, UserError):
                listed += Checkpoint(path).segments
        on_disk.remove_unlisted(self._folder / BUFFER, listed)


def _set_aside(path: Path) -> None:
    """Renames a checkpoint before it is deleted, so that half a checkpoint never has the name of one."""
    gone = path.with_name(f".{path.name}.gone")
    shutil.rmtree(gone, ignore_errors=True)  # of a killed process
    path.replace(gone)


def write_state(state: Any, path: Path) -> str:
    """Writes and syncs a state of tensors and plain values; returns the file's checksum."""
    with path.open("wb") as file:
        stream = _HashingStream(file)
        try:
            torch.save(state, stream)  # type: ignore[arg-type]  # it calls only `write` and `flush`
            file.flush()
        except RuntimeError:
            if stream.error is None:
                raise
            raise stream.error from None
    sync(path)
    return stream.sha256.hexdigest()


def write_file(write: Callable[[Path], object], path: Path) -> str | None:
    """Calls a function that writes a file, and syncs it; returns its checksum, or None if no file was written."""
    try:
        write(path)
    except RuntimeError as error:  # torch's own file writer reports a full disk like this
        raise OSError(errno.EIO, str(error).splitlines()[0]) from None
    if not path.exists():
        return None
    sync(path)
    return checkpoint.file_checksum(path)


class _HashingStream:
    """A file that computes its checksum, and keeps the OSError that torch.save replaces by a RuntimeError."""

    def __init__(self, file: Any):
        self._file = file
        self.sha256 = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            written = self._file.write(data)
        except OSError as error:
            self.error = error
            raise
        self.sha256.update(data)
        return written

    def flush(self) -> None:
        self._file.flush()
