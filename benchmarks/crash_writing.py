"""Kills commands while they write files: files with final names must be whole, and the command must be repeatable.

A file is whole if it has its earlier bytes or those that an undisturbed command writes. If two undisturbed commands
write different bytes, it is enough that the file can be read to its end. Names with a leading dot are not final.
"""

import contextlib
import csv
import json
import os
import random
import shutil
import signal
import time
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import imageio
import torch
import yaml
from crash_processes import Outcome, last_output, start, wait
from crash_scenarios import PENDULUM, Command
from crash_training import Run
from PIL import Image

Files = dict[str, bytes]


def finish_runs(folder: Path) -> Path:
    """Trains the two runs that the commands work on, unless the folder has them; returns the folder."""
    folder.mkdir(exist_ok=True)
    for seed, name in enumerate(("run", "run_2")):
        run = Run(folder / name, [PENDULUM, "num_train_steps=300", f"seed={seed}"])
        if not run.is_finished() and wait(run.start(), 600) != 0:
            raise SystemExit(f"the run for other commands failed: {run.last_output()}")
    return folder


class Writing:
    """A scenario: one command, on finished runs.

    Args:
        folder: folder of the undisturbed command; those of the other commands add to its name.
        begun: folder with the two runs on which the command works; it is copied.
        command: the command to kill.
    """

    def __init__(self, folder: Path, begun: Path, command: Command):
        self._folder, self._begun, self._command, self._attempts = folder, begun, command, 0
        before, started_s = files(begun), time.perf_counter()
        self._new = self._undisturbed(folder)
        self._whole_s = time.perf_counter() - started_s
        again = self._undisturbed(folder.with_name(f"{folder.name}_again"))
        self._names = self._new.keys() | before.keys()
        self._varying = {name for name in self._new.keys() & again.keys() if self._new[name] != again[name]}

    def _undisturbed(self, folder: Path) -> Files:
        shutil.copytree(self._begun, folder)
        process, log = self._start(folder)
        if wait(process, 600) != 0:
            raise SystemExit(f"the undisturbed command failed: {last_output(log)}")
        return files(folder)

    def _start(self, folder: Path) -> tuple[int, Path]:
        os.environ["MINARI_DATASETS_PATH"] = str(folder / "datasets")  # the process inherits it
        log = folder.with_suffix(".txt")
        arguments = [text.format(run=folder / "run", folder=folder) for text in self._command.arguments]
        return start(self._command.program, arguments, log), log

    def attempt(self, chance: random.Random, outcome: Outcome, until_s: float) -> Path:
        """Kills the command up to three times, then lets it finish; returns its folder."""
        self._attempts += 1
        folder = self._folder.with_name(f"{self._folder.name}_{self._attempts}")
        faults: list[str] = []
        is_repeated = self._command.is_repeatable and chance.random() < 0.5
        shutil.copytree(self._folder if is_repeated else self._begun, folder)
        for kills_left in range(chance.randint(1, 3), -1, -1):
            before = files(folder)
            process, log = self._start(folder)
            code = self._killed(process, folder, chance, outcome) if kills_left else wait(process, 600)
            faults += self._faults(folder, before)
            if code:
                faults.append(f"exit code {code}: {last_output(log)}")
            is_done = code == 0 or (not self._command.is_repeatable and self._names <= files(folder).keys())
            if faults or is_done:
                break
        if not faults:
            outcome.runs += 1
            faults += [f"{name} was not written" for name in sorted(self._names - files(folder).keys())]
        outcome.faults += faults
        return folder

    def _killed(self, process: int, folder: Path, chance: random.Random, outcome: Outcome) -> int | None:
        """Kills the process at a random instant, or after it has changed some files.

        Returns:
            Its exit code if it ended first; None if it was killed.
        """
        before = seen = changes(folder)
        if chance.random() < 0.3:
            code = wait(process, chance.uniform(0, self._whole_s))
        else:
            until_s = time.perf_counter() + 2 * self._whole_s
            for _ in range(chance.randint(1, 6)):
                while (code := wait(process, 0)) is None and changes(folder) == seen and time.perf_counter() < until_s:
                    time.sleep(0.0005)
                if code is not None:
                    return code
                seen = changes(folder)
            code = wait(process, chance.uniform(0, 0.01))
        if code is None:
            os.kill(process, signal.SIGKILL)
            wait(process, 60)
            outcome.sigkills += 1
            outcome.during_a_write += changes(folder) != before
        return code

    def _faults(self, folder: Path, before: Files) -> list[str]:
        """Describes the files with final names that are foreign, gone, not whole, or incomplete as a group."""
        now = files(folder)
        faults = [f"{name}: no file of this command" for name in sorted(now.keys() - self._names)]
        faults += [f"{name} is gone" for name in sorted(before.keys() - now.keys())]
        for name in sorted(now.keys() & self._names):
            if now[name] in (before.get(name), self._new.get(name)):
                continue
            reason = unreadable(folder / name) if name in self._varying else "neither its old nor its new bytes"
            faults += [f"{name}: {reason}"] if reason else []
        if self._command.together:
            expected = {name for name in self._new if name.startswith(f"{self._command.together}/")}
            present = expected & now.keys()
            if present not in (set(), expected):
                faults.append(f"{self._command.together} lacks {', '.join(sorted(expected - present))}")
        return faults


def files(folder: Path) -> Files:
    """Returns the contents of the files with final names, by name relative to the folder."""
    paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        str(name): path.read_bytes() for name, path in paths.items() if not any(p.startswith(".") for p in name.parts)
    }


def changes(folder: Path) -> dict[Path, int]:
    """Returns when each file and folder last changed, whether or not its name is final."""
    times = {}
    for parent, folders, names in os.walk(folder):  # skips a folder that has just been renamed
        for path in (Path(parent, name) for name in (*folders, *names)):
            with contextlib.suppress(FileNotFoundError):
                times[path] = path.lstat().st_mtime_ns
    return times


def unreadable(path: Path) -> str | None:
    """Reads a file to its end and returns what is wrong with it; None if nothing is."""
    try:
        READERS.get(path.suffix, _read_any)(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _read_any(path: Path) -> None:
    if not path.read_bytes():
        raise ValueError("it is empty")


def _read_html(path: Path) -> None:
    if not path.read_text(encoding="utf-8").rstrip().endswith("</html>"):
        raise ValueError("it has no end")


def _read_hdf5(path: Path) -> None:
    with h5py.File(path) as file:
        file.visititems(lambda name, item: item[()].shape if isinstance(item, h5py.Dataset) else None)


def _read_onnx(path: Path) -> None:
    import onnx  # not earlier: forked processes would lack the threads it starts

    onnx.checker.check_model(onnx.load(path))


READERS: dict[str, Callable[[Path], Any]] = {
    ".csv": lambda path: list(csv.reader(path.read_text(encoding="utf-8").splitlines(), strict=True)),
    ".hdf5": _read_hdf5,
    ".html": _read_html,
    ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    ".mp4": lambda path: list(imageio.get_reader(path)),  # type: ignore[call-overload]
    ".onnx": _read_onnx,
    ".png": lambda path: Image.open(path).load(),
    ".pt": lambda path: torch.load(path, weights_only=True),
    ".svg": lambda path: xml.etree.ElementTree.parse(path),
    ".yaml": lambda path: yaml.safe_load(path.read_text(encoding="utf-8")),
}
