"""Writes checkpoints and deletes old ones. For the layout see run/saving/checkpoint.py.

A checkpoint gets its name when it is complete and on the disk (see files/writing.py).
"""

import contextlib
import errno
import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from files.reading import checksum
from files.tensors import save_plain
from files.writing import append_file, hide, make_folder, new_folder, remove_folder
from replay import on_disk
from run.saving import checkpoint
from run.saving.checkpoint import BUFFER, FOLDER, MANIFEST, PRELOADED, BrokenError, Checkpoint
from utils import UserError


class CheckpointWriter:
    """Writes a run's checkpoints and deletes old ones.

    Args:
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
            states: tensors and plain values, by the name of their file.
            save_policy: writes the policy alone into a file, or raises UserError if it cannot be saved alone.
            buffer: the ReplayBuffer whose new rows are saved (see replay.on_disk.extend); None leaves it out.
            preloaded: the ReplayBuffer with preloaded rows; None leaves it out.

        Raises:
            OSError: if it cannot be written; then nothing of it is left on the disk.
        """
        target = self.path(step)
        try:
            for folder in (self._folder, self._folder / BUFFER):
                make_folder(folder)  # without parents: a run's folder that the user deleted stays deleted
            # New rows go into folders that all checkpoints share; they are not read until a manifest lists them.
            segments = on_disk.extend(self._folder / BUFFER, self._segments, buffer) if buffer is not None else []
            if preloaded is not None:
                make_folder(self._folder / PRELOADED)
                self._preloaded = on_disk.extend(self._folder / PRELOADED, self._preloaded, preloaded)
            with new_folder(target) as partial:
                checksums = {name: _write_state(state, partial / f"{name}.pt") for name, state in states.items()}
                if policy_checksum := _write_policy(save_policy, partial / "policy.pt"):
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
                with append_file(partial / MANIFEST) as file:
                    file.write(json.dumps(content, indent=1).encode())
                if target.exists():  # a damaged checkpoint of this step
                    hide(target)
        except OSError:
            self._remove_unlisted_rows()
            raise
        self._segments, self.last_step = segments, step
        with contextlib.suppress(OSError):  # the next checkpoint tries again
            self._remove_old()

    def _remove_old(self) -> None:
        broken = set(self._broken) - {self.path(self.last_step or 0)}  # the newest may have replaced a damaged one
        folders = checkpoint.newest_first(self._folder.parent)
        kept = [path for path in folders if path not in broken][: self._keep]
        for path in folders:
            if path not in kept:
                remove_folder(path)
        for path in self._folder.glob(".step_*"):
            shutil.rmtree(path, ignore_errors=True)
        self._broken = ()
        self._remove_unlisted_rows()

    def _remove_unlisted_rows(self) -> None:
        """Deletes the files of rows that no checkpoint lists any more."""
        listed = list(self._segments)  # of the newest checkpoint, which need not be read
        for path in checkpoint.newest_first(self._folder.parent):
            if self.last_step is None or path != self.path(self.last_step):
                with contextlib.suppress(BrokenError, UserError):
                    listed += Checkpoint(path).segments
        on_disk.remove_unlisted(self._folder / BUFFER, listed)


def _write_state(state: Any, path: Path) -> str:
    """Writes a state of tensors and plain values; returns the file's checksum."""
    with append_file(path) as file:
        return save_plain(state, file)


def _write_policy(save_policy: Callable[[Path], object], path: Path) -> str | None:
    """Calls a function that may write a file; returns the file's checksum, or None if there is none."""
    try:
        with contextlib.suppress(UserError):  # networks that cannot be saved alone
            save_policy(path)
    except RuntimeError as error:  # torch's own file writer reports a full disk like this
        raise OSError(errno.EIO, str(error).splitlines()[0]) from None
    return checksum(path) if path.exists() else None
