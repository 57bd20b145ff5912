"""Checkpoints of a run folder: written beside the old ones, synced, renamed; read back only if whole.

    checkpoints/step_20000/manifest.json   format, step, whose it is, every file's checksum
                           agent.pt        the agent; run.pt everything else; policy.pt the policy alone
                           replay_buffer.pt   a replay buffer that is no ReplayBuffer, whole
    checkpoints/buffer/                    a ReplayBuffer's rows (see replay/on_disk.py), shared by the checkpoints
    checkpoints/preloaded/                 those that `preload_share` draws from, likewise

A crash at any instant leaves the old ones whole. Files are read with `weights_only=True`: tensors and plain values.
"""

import contextlib
import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from replay import on_disk
from replay.on_disk import Segment
from run.saving import checkpoint_files, manifests
from run.saving.manifests import PRELOADED
from utils import UserError, load_plain, one_line, open_file, sync

FORMAT = 2
FOLDER, MANIFEST, BUFFER = "checkpoints", "manifest.json", "buffer"


class BrokenError(Exception):
    """A checkpoint that is not whole; the message says what is wrong with it."""


class NoneWholeError(UserError):
    """No checkpoint of a run is whole; `without_buffer` is the newest that is but for its replay buffer, if any is."""

    def __init__(self, message: str, without_buffer: Path | None):
        super().__init__(message)
        self.without_buffer = without_buffer


class Checkpoint:
    """One checkpoint on disk.

    Args:
        path: its folder, `step_<number>`.

    Raises:
        BrokenError: if its manifest cannot be read.
        UserError: if it is of another format.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with open_file(path / MANIFEST) as file:
                signed = json.loads(file.read())
            self._manifest: dict[str, Any] = signed["manifest"]
            whole = signed["sha256"] == manifests.signature(self._manifest)
            has_format = self._manifest["format"]
        except OSError as error:
            raise BrokenError(f"{MANIFEST}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BrokenError(f"{MANIFEST} is no manifest") from None
        if not whole:
            raise BrokenError(f"{MANIFEST} has changed since it was written")
        if has_format != FORMAT:
            raise UserError(f"{path}: a checkpoint of format {one_line(str(has_format))}; this version reads {FORMAT}")
        wrong = manifests.fault(self._manifest, path)
        if wrong:
            raise BrokenError(f"{MANIFEST}: {wrong}")
        self.step: int = self._manifest["step"]
        self.segments = [Segment(**segment) for segment in self._manifest["segments"]]
        self.preloaded = [Segment(**segment) for segment in self._manifest.get(PRELOADED, [])]

    def require(self, identity: dict[str, Any]) -> None:
        """Raises UserError, naming the first difference, unless it was saved with this identity."""
        for key, ours in identity.items():
            theirs = self._manifest["identity"].get(key)
            if theirs != ours:
                raise UserError(f"{self.path}: a checkpoint of {key}={theirs}, not of {key}={ours}")

    def has(self, part: str) -> bool:
        return part in self._manifest["parts"]

    def verify(self, *parts: str, buffer: bool = False) -> None:
        """Raises BrokenError unless these parts and, if asked, the replay buffer are what was written."""
        for name in [*parts, "replay_buffer"] if buffer and self.has("replay_buffer") else parts:
            try:
                with open_file(self._part(name)) as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise BrokenError(f"{name}.pt: {error.strerror}") from None
            if digest != self._manifest["parts"].get(name):
                raise BrokenError(f"{name}.pt has changed since it was written")
        wrong = on_disk.fault(self.path.parent / BUFFER, self.segments) if buffer else None
        wrong = wrong or (self._fault_of_preloaded() if buffer else None)
        if wrong:
            raise BrokenError(wrong)

    def load(self, part: str) -> Any:
        """A part's state, on the CPU.

        Raises:
            UserError: if it holds anything but tensors and plain values.
        """
        path = self._part(part)
        try:
            return load_plain(path)
        except pickle.UnpicklingError:
            raise UserError(f"{path}: refused, as it holds more than tensors and plain values") from None
        except Exception as error:  # torch's reader and unpickler raise whatever a damaged file leads them to
            raise UserError(f"{path}: cannot be read ({type(error).__name__})") from None

    def leave_buffer(self) -> None:
        """From now on it is one that was saved without its replay buffer, and without what was preloaded if that is
        damaged too."""
        self.segments = []
        self.preloaded = [] if self._fault_of_preloaded() else self.preloaded
        self._manifest["parts"].pop("replay_buffer", None)

    def load_rows(self, buffer: Any, state: dict[str, Any]) -> None:
        """Fills the rings of a replay buffer, whose state was saved with them."""
        on_disk.read(self.path.parent / BUFFER, self.segments, buffer, state)

    def load_preloaded(self, buffer: Any, num_added: int) -> None:
        """The same for the rows that the run began with."""
        on_disk.read(self.path.parent / PRELOADED, self.preloaded, buffer, {"num_added": num_added})

    def _fault_of_preloaded(self) -> str | None:
        return on_disk.fault(self.path.parent / PRELOADED, self.preloaded)

    def _part(self, name: str) -> Path:
        return self.path / f"{name}.pt"


def newest_first(run_folder: Path) -> list[Path]:
    """The folders of a run's checkpoints, whole or not."""
    numbered = [
        path for path in (run_folder / FOLDER).glob("step_*") if path.name[5:].isdecimal() and path.name.isascii()
    ]
    return sorted(numbered, key=lambda path: int(path.name[5:]), reverse=True)


def newest_whole(
    run_folder: Path, *parts: str, buffer: bool = False, identity: dict[str, Any] | None = None
) -> tuple[Checkpoint, list[Path]]:
    """The newest checkpoint of a run that is whole, and the newer ones that are not; of these it tells.

    Args:
        parts, buffer: what has to be whole, as for `Checkpoint.verify`.
        identity: whose it has to be, as for `Checkpoint.require`.

    Raises:
        NoneWholeError: if all are damaged.
        UserError: if there is none, or it is somebody else's.
    """
    broken: list[Path] = []
    without_buffer = None
    for path in newest_first(run_folder):
        try:
            found = Checkpoint(path)
            if identity is not None:
                found.require(identity)
            found.verify(*parts)
            without_buffer = without_buffer or path
            found.verify(buffer=buffer)
        except BrokenError as error:
            print(f"{path}: {error}; going back to the checkpoint before it", flush=True)
            broken.append(path)
            continue
        return found, broken
    if broken:
        raise NoneWholeError(f"{run_folder}: no checkpoint there is whole", without_buffer)
    raise UserError(f"{run_folder}: there is no checkpoint in it")


class Checkpoints:
    """Writes a run's checkpoints and removes old ones.

    Args:
        run_folder: the run's.
        keep: how many stay.
        identity: whose they are: plain values, compared when one is read.
        continues: the checkpoint that the run continues from.
        broken: those to be removed once there is a new one.
    """

    def __init__(
        self,
        run_folder: Path,
        keep: int,
        identity: dict[str, Any],
        continues: Checkpoint | None = None,
        broken: list[Path] | None = None,
    ):
        self._folder = run_folder / FOLDER
        self._keep = keep
        self._identity = identity
        self._segments = continues.segments if continues else []
        self._preloaded = continues.preloaded if continues else []
        self._broken = broken or []
        self.last_step: int | None = continues.step if continues else None

    def path(self, step: int) -> Path:
        return self._folder / f"step_{step}"

    def save(
        self,
        step: int,
        parts: dict[str, Any],
        files: dict[str, Callable[[Path], None]],
        buffer: Any | None,
        preloaded: Any | None = None,
    ) -> None:
        """Writes a checkpoint; until it is whole and on the disk, the old ones are all there is.

        Args:
            step: environment steps so far.
            parts: states of tensors and plain values, by name.
            files: more parts, by functions that write a file, or none.
            buffer: the ReplayBuffer whose rows are saved (see replay.on_disk.extend), or None to leave them out.
            preloaded: another one, whose rows stay what they are.

        Raises:
            OSError: if it cannot be written; nothing is left of it then.
        """
        target = self.path(step)
        partial = target.with_name(f".{target.name}.part")
        try:
            self._folder.mkdir(exist_ok=True)  # its parent is not made again where somebody deleted it
            (self._folder / BUFFER).mkdir(exist_ok=True)
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            rows = on_disk.extend(self._folder / BUFFER, self._segments, buffer) if buffer is not None else []
            if preloaded is not None:
                (self._folder / PRELOADED).mkdir(exist_ok=True)
                self._preloaded = on_disk.extend(self._folder / PRELOADED, self._preloaded, preloaded)
            digests = {
                name: checkpoint_files.write_state(state, partial / f"{name}.pt") for name, state in parts.items()
            }
            for name, write in files.items():
                digest = checkpoint_files.write_file(write, partial / f"{name}.pt")
                digests |= {name: digest} if digest else {}
            manifest = {
                "format": FORMAT,
                "step": step,
                "identity": self._identity,
                "parts": digests,
                "segments": [segment.plain() for segment in rows],
            }
            if preloaded is not None:
                manifest[PRELOADED] = [segment.plain() for segment in self._preloaded]
            signed = {"sha256": manifests.signature(manifest), "manifest": manifest}
            (partial / MANIFEST).write_text(json.dumps(signed, indent=1), encoding="utf-8")
            sync(partial / MANIFEST)
            sync(partial)
            if target.exists():  # one that was found broken
                target.replace(target.with_name(f".{target.name}.gone"))
            partial.replace(target)
            sync(self._folder)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            on_disk.remove_unlisted(self._folder / BUFFER, self._listed())
            raise
        self._segments, self.last_step = rows, step
        with contextlib.suppress(OSError):  # the next time, then
            self._remove_old()

    def _remove_old(self) -> None:
        broken = [path for path in self._broken if path != self.path(self.last_step or 0)]  # unless written again
        there = newest_first(self._folder.parent)
        kept = [path for path in there if path not in broken][: self._keep]
        for path in there:
            if path not in kept:
                # Renamed first: half a checkpoint never has a checkpoint's name.
                path.replace(path.with_name(f".{path.name}.gone"))
        for path in self._folder.glob(".step_*"):
            shutil.rmtree(path, ignore_errors=True)
        self._broken = []
        on_disk.remove_unlisted(self._folder / BUFFER, self._listed())

    def _listed(self) -> list[Segment]:
        """The segments that some checkpoint needs."""
        listed = list(self._segments)
        for path in newest_first(self._folder.parent):
            try:
                listed += Checkpoint(path).segments
            except (BrokenError, UserError):
                continue
        return listed
