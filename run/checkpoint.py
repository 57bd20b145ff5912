"""Checkpoints: what a killed run continues from, to the same bytes. docs/RESUMING.md lists their files.

A segment holds the rows that were added between two checkpoints, so it is written once, and saving costs as much as
there is new. Files are loaded with `weights_only=True`: they hold tensors and plain values, and no code is run.
"""

import contextlib
import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from utils import UserError, leaves, sha256_of, sync

FOLDER, MANIFEST = "checkpoints", "manifest.json"
BUFFER, PRELOADED = "buffer", "preloaded"  # keys of the manifest, and folders of their segments
PLAIN = (torch.Tensor, torch.nn.Parameter, bool, int, float, str, type(None))  # types that weights_only=True loads
Segments = list[dict[str, Any]]  # name, ring, sha256, and rows [start, stop), counted from the first ever added


class Saved(NamedTuple):
    """An intact checkpoint: its folder, its manifest and the states that were asked for."""

    path: Path
    manifest: dict[str, Any]
    states: dict[str, Any]

    def require_identity(self, identity: dict[str, Any]) -> None:
        """Raises UserError, naming the first difference, unless a run with this identity saved the checkpoint."""
        for key, expected in identity.items():
            if (found := self.manifest["identity"].get(key)) != expected:
                raise UserError(f"{self.path}: a checkpoint of {key}={found}, not of {key}={expected}")

    def count_rows(self, kind: str) -> int:
        """Returns how many rows had ever been added to BUFFER or PRELOADED; 0 if the checkpoint has none of them."""
        return max((segment["stop"] for segment in self.manifest[kind] if segment["ring"] == "rows"), default=0)

    def read_rows(self, kind: str, buffer: Any) -> None:
        """Fills the rings of a ReplayBuffer; its `load_state_dict` restores the counters afterwards."""
        for segment in self.manifest[kind]:
            ring, file = buffer.rings[segment["ring"]], self.path.parent / kind / segment["name"]
            rows = np.memmap(file, np.float32, "r").reshape(-1, ring.row_width)[-ring.capacity :]
            ring.put_chunk(segment["stop"] - len(rows), rows)


def list_checkpoints(run_folder: Path) -> list[Path]:
    """Returns the folders of a run's checkpoints, damaged ones included, the newest first."""
    paths = [path for path in (run_folder / FOLDER).glob("step_*") if path.name.removeprefix("step_").isdecimal()]
    return sorted(paths, key=_step, reverse=True)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step_"))


def _read_manifest(path: Path) -> dict[str, Any]:
    return json.loads((path / MANIFEST).read_text(encoding="utf-8"))


def read_checkpoint(path: Path, *names: str, with_rows: bool = False) -> Saved:
    """Reads those of the files `<name>.pt` that the checkpoint has; raises ValueError if one of them has changed, or
    with `with_rows` a segment."""
    manifest = _read_manifest(path)
    names = tuple(name for name in names if f"{name}.pt" in manifest["files"])
    sums = {path / f"{name}.pt": manifest["files"][f"{name}.pt"] for name in names}
    for kind in (BUFFER, PRELOADED) if with_rows else ():
        sums |= {path.parent / kind / segment["name"]: segment["sha256"] for segment in manifest[kind]}
    for file, expected in sums.items():
        if sha256_of(file) != expected:
            raise ValueError(f"{file.name} has changed since it was written")
    states = {name: torch.load(path / f"{name}.pt", map_location="cpu", weights_only=True) for name in names}
    return Saved(path, manifest, states)


def read_newest(run_folder: Path, *names: str, identity: dict[str, Any], with_rows: bool = False) -> Saved:
    """Reads the newest checkpoint that is intact; prints a line about each that it passes over. Raises UserError if
    there is none, or it has another identity (see Checkpoints)."""
    for path in list_checkpoints(run_folder):
        try:
            saved = read_checkpoint(path, *names, with_rows=with_rows)
        except Exception as error:  # a damaged file can make its reader raise anything
            print(f"{path} is damaged ({type(error).__name__}: {error}); using the one before it", flush=True)
            continue
        saved.require_identity(identity)
        return saved
    raise UserError(f"{run_folder}: there is no checkpoint in it that can be read")


class Checkpoints:
    """Writes and reads the checkpoints of one run, and keeps the newest; one that is loaded has to share `identity`."""

    def __init__(self, folder: Path, keep: int, identity: dict[str, Any]):
        self._run_folder, self._folder = folder, folder / FOLDER
        self._keep, self._identity = keep, identity
        self._segments: dict[str, Segments] = {BUFFER: [], PRELOADED: []}
        self.newest: Path | None = None  # the newest checkpoint's folder, of those that can be loaded

    def load_newest(self, *names: str) -> Saved:
        """Reads the newest intact checkpoint (see `read_newest`), with which the next ones share segments."""
        saved = read_newest(self._run_folder, *names, identity=self._identity, with_rows=True)
        self._segments = {kind: saved.manifest[kind] for kind in self._segments}
        self.newest = saved.path
        return saved

    def save(self, step: int, states: dict[str, Any], buffer: Any = None, preloaded: Any = None) -> None:
        """Writes a checkpoint, and then deletes what is too old.

        If the process is killed or the machine switched off before the rename is on the disk, the older checkpoints are
        untouched, and the next one deletes what is left. After it, the checkpoint is whole, as all was synced before.

        Args:
            states: tensors and plain values, by the name of their file.
            buffer, preloaded: ReplayBuffers whose new rows are saved; None saves none.

        Raises:
            OSError: if it cannot be written; then nothing of it is left on the disk.
        """
        if leaf := next((name for name, value in leaves(states, "state") if type(value) not in PLAIN), None):
            raise UserError(f"{leaf}: a state_dict holds tensors, numbers, strings, lists and dictionaries of these")
        partial, target = self._folder / f".step_{step}", self._folder / f"step_{step}"
        self._folder.mkdir(exist_ok=True)  # without parents: a run's folder that the user deleted stays deleted
        try:
            segments = {BUFFER: self._write_rows(BUFFER, buffer), PRELOADED: self._write_rows(PRELOADED, preloaded)}
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for name, state in states.items():
                torch.save(state, partial / f"{name}.pt")
            sums = {path.name: sha256_of(path) for path in sorted(partial.iterdir())}
            manifest = {"step": step, "identity": self._identity, "files": sums, **segments}
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            for path in (*partial.iterdir(), partial):
                sync(path)
            shutil.rmtree(target, ignore_errors=True)  # a damaged one of this step
            partial.rename(target)
            sync(self._folder)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            self._remove_unused()
            raise OSError(str(error).splitlines()[0]) from error
        paths, known = list_checkpoints(self._run_folder), _step(self.newest) if self.newest else 0
        self._segments, self.newest = segments, target
        # One after the step that the run continued from was damaged when it was read.
        newest = [path for path in paths if path == target or _step(path) <= known][: self._keep]
        for path in set(paths) - set(newest):
            path.rename(path.with_name(f".{path.name}"))  # it loses its name before its files
        self._remove_unused()

    def _write_rows(self, kind: str, buffer: Any) -> Segments:
        """Writes a segment for each ring with new rows; returns all segments with rows of these rings."""
        segments: Segments = []
        for name, ring in buffer.rings.items() if buffer is not None else ():
            oldest = ring.num_added - len(ring)
            old_segments = [old for old in self._segments[kind] if old["ring"] == name and old["stop"] > oldest]
            start, stop = max(old_segments[-1]["stop"] if old_segments else 0, oldest), ring.num_added
            segments += old_segments
            if start < stop:
                path = self._folder / kind / f"{start:012d}-{stop:012d}.{name}"
                path.parent.mkdir(exist_ok=True)
                with path.open("wb") as file:
                    for rows in ring.chunks(start, stop):
                        file.write(rows.data)
                sync(path)
                sync(path.parent)
                written = {"name": path.name, "ring": name, "start": start, "stop": stop, "sha256": sha256_of(path)}
                segments.append(written)
        return segments

    def _remove_unused(self) -> None:
        """Deletes folders without a checkpoint's name, and the segments that no checkpoint lists."""
        for path in self._folder.glob(".step_*"):
            shutil.rmtree(path, ignore_errors=True)
        used = set()
        for path in list_checkpoints(self._run_folder):
            with contextlib.suppress(OSError, ValueError, KeyError):  # a damaged one
                manifest = _read_manifest(path)
                used |= {self._folder / kind / each["name"] for kind in self._segments for each in manifest[kind]}
        for kind in self._segments:
            for path in set((self._folder / kind).glob("*-*")) - used:
                path.unlink(missing_ok=True)


@dataclass(eq=False)
class GlobalGenerators:
    """Saves the global random generators of Python, NumPy, torch and, if the run uses one, its GPU."""

    device: torch.device

    def state_dict(self) -> dict[str, Any]:
        kind, keys, *rest = np.random.get_state(legacy=True)
        numpy_state = (kind, np.asarray(keys).tolist(), *rest)
        state = {"python": random.getstate(), "numpy": numpy_state, "torch": torch.get_rng_state()}
        return state | ({"cuda": torch.cuda.get_rng_state(self.device)} if self.device.type == "cuda" else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        torch.set_rng_state(state["torch"])
        if self.device.type == "cuda" and "cuda" in state:  # a run may change its device
            torch.cuda.set_rng_state(state["cuda"], self.device)
