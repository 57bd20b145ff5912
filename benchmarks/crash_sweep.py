"""Kills sweeps (all processes, the first one, or that of a run) and repeats them until no run is missing."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

from crash_processes import Outcome, kill_group, last_output, start, wait
from crash_scenarios import SMALL
from same_bytes import same
from same_run import result

MOST_STARTS = 30


class Sweep:
    """A scenario: one sweep.

    Args:
        folder: folder of the undisturbed sweep; those of the other sweeps add a number to its name.
        overrides: overrides of the sweep.
    """

    def __init__(self, folder: Path, overrides: list[str]):
        self._folder, self._overrides, self._attempts = folder, overrides, 0
        started_s = time.perf_counter()
        code = wait(self._start(folder), 600)
        if code != 0:
            raise SystemExit(f"the undisturbed sweep ended with {code}: {last_output(folder.with_suffix('.txt'))}")
        self._whole_s = time.perf_counter() - started_s
        self._expected = {run.name: result(run) for run in runs(folder)}

    def _start(self, folder: Path) -> int:
        arguments = ["-m", "resume=auto", *SMALL, *self._overrides, f"hydra.sweep.dir={folder}"]
        return start("train.py", arguments, folder.with_suffix(".txt"), fresh=True)

    def attempt(self, chance: random.Random, outcome: Outcome, until_s: float) -> Path:
        """Kills and repeats a sweep until its runs are finished, with no kills after `until_s`; returns its folder."""
        self._attempts += 1
        folder = self._folder.with_name(f"{self._folder.name}_{self._attempts}")
        for number in range(MOST_STARTS):
            process = self._start(folder)
            outcome.fresh_interpreters += 1
            is_late = time.perf_counter() >= until_s or number > MOST_STARTS // 2
            code = wait(process, 600 if is_late else chance.uniform(0.2, 1) * self._whole_s)
            if code is None:
                code = self._kill(process, folder, chance, outcome)
            if code == 0:
                break
            if code not in (-signal.SIGKILL, 3):  # 3: the sweep reports the run that was killed
                outcome.faults.append(f"exit code {code}: {last_output(folder.with_suffix('.txt'))}")
                kill_group(process)
                return folder
        outcome.runs += 1
        got = {run.name: result(run) for run in runs(folder)}
        if got.keys() != self._expected.keys():
            outcome.faults.append(f"finished are {', '.join(sorted(got)) or 'no runs'}")
            return folder
        for name, parts in got.items():
            outcome.faults += [
                f"{name}: {part} differs" for part in parts if not same(parts[part], self._expected[name][part])
            ]
        return folder

    def _kill(self, process: int, folder: Path, chance: random.Random, outcome: Outcome) -> int | None:
        """Kills all processes, the first one alone, or that of one run; returns the first process's exit code."""
        outcome.sigkills += 1
        workers = working(folder) - {process}
        kind = chance.choice(["all", "first", "run"])
        if kind == "run" and workers:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(sorted(workers)), signal.SIGKILL)
            return wait(process, 600)
        if kind == "first":
            os.kill(process, signal.SIGKILL)
        else:
            kill_group(process)
        return wait(process, 60)


def runs(folder: Path) -> list[Path]:
    """Returns the folders of a sweep's finished runs."""
    return sorted(path.parent for path in folder.glob("*/finished.json"))


def working(folder: Path) -> set[int]:
    """Returns the running processes that the locks in the folders of a sweep's runs name."""
    texts = [path.read_text(errors="replace") for path in folder.glob("*/.lock")]
    numbers = {int(text.partition(" ")[0]) for text in texts if text.partition(" ")[0].isdecimal()}
    return {number for number in numbers if _exists(number)}


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
