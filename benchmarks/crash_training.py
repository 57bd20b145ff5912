"""Kills trainings at random instants, resumes them until they finish, and compares every byte."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from crash_processes import ROOT, Outcome, last_output, start, wait, wait_until
from crash_scenarios import SMALL
from same_bytes import same
from same_run import result

from run.saving import checkpoint
from run.saving import folder as run_folder
from run.stopping import EXIT_SAVED


class Run:
    """A training run in a folder, which is started again until it is finished."""

    def __init__(self, folder: Path, overrides: list[str]):
        self.folder = folder
        self._auto = ["resume=auto", *SMALL, *overrides, f"hydra.run.dir={folder}"]
        self._log = folder.with_suffix(".txt")

    def start(self, fresh: bool = False, by_folder: bool = False) -> int:
        """Starts a process and returns its id.

        Args:
            fresh: whether to start a new interpreter; otherwise forks this process.
            by_folder: whether to use `resume=<folder>` if there is a checkpoint; otherwise uses `resume=auto`.
        """
        by_folder = by_folder and bool(checkpoint.newest_first(self.folder))
        return start("train.py", [f"resume={self.folder}"] if by_folder else self._auto, self._log, fresh)

    def is_finished(self) -> bool:
        return (self.folder / run_folder.FINISHED).exists()

    def is_writing(self) -> bool:
        """Returns whether half a checkpoint exists: one that is being written, or that a killed process left."""
        folder = self.folder / checkpoint.FOLDER
        lasting = [folder / name for name in (checkpoint.BUFFER, checkpoint.PRELOADED, "best")]  # a step_* may vanish
        return any(folder.glob(".step_*")) or any(path for each in lasting for path in each.glob(".*"))

    def last_output(self) -> str:
        return last_output(self._log)


class Training:
    """A scenario: one configuration.

    Args:
        folder: folder of the undisturbed run; those of the other runs add a number to its name.
        overrides: overrides of the run.
    """

    def __init__(self, folder: Path, overrides: list[str]):
        self._folder, self._overrides, self._attempts = folder, overrides, 0
        straight = Run(folder, overrides)
        started_s = time.perf_counter()
        code = wait(straight.start(), 600)
        if code != 0:
            raise SystemExit(f"the undisturbed run ended with {code}: {straight.last_output()}")
        self._whole_s = time.perf_counter() - started_s
        started_s = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import train, envs.make"], cwd=ROOT, check=True)
        self._import_s = time.perf_counter() - started_s
        self._expected: dict[str, Any] = result(folder)

    def attempt(self, chance: random.Random, outcome: Outcome, until_s: float) -> Path:
        """Kills and resumes a run until it is finished, with no kills after `until_s`; returns its folder."""
        self._attempts += 1
        run = Run(self._folder.with_name(f"{self._folder.name}_{self._attempts}"), self._overrides)
        if self._disturb(run, chance, outcome, until_s):
            outcome.runs += 1
            got = result(run.folder)
            outcome.faults += [f"{part} differs" for part in got if not same(got[part], self._expected[part])]
        return run.folder

    def _disturb(self, run: Run, chance: random.Random, outcome: Outcome, until_s: float) -> bool:
        """Kills and resumes the run; returns whether it finished without a fault."""
        span_s = 0.2 * self._whole_s  # kills fall within this time; it grows while no new checkpoint is reached
        while True:
            fresh = chance.random() < 0.1
            outcome.fresh_interpreters += fresh
            process = run.start(fresh, by_folder=chance.random() < 0.8)
            before = checkpoint.newest_first(run.folder)[:1]
            delay_s = chance.uniform(0, span_s) + (self._import_s if fresh else 0)
            if time.perf_counter() >= until_s:
                delay_s = 600
            code = wait(process, delay_s)
            if code is None and chance.random() < 0.5:
                wait_until(lambda: not run.is_writing())  # until an older write is over
                wait_until(lambda: run.is_writing() or run.is_finished())
                code = wait(process, chance.uniform(0, 0.008))
            if code is None:
                number = signal.SIGTERM if chance.random() < 0.2 else signal.SIGKILL
                os.kill(process, number)
                code = wait(process, 60)
                span_s *= 1.3 if checkpoint.newest_first(run.folder)[:1] == before else 0.9
                if number == signal.SIGKILL:
                    outcome.sigkills += 1
                    outcome.during_a_write += run.is_writing()
                else:
                    outcome.sigterms += 1
                if code in (-number, EXIT_SAVED):
                    continue
            if code != 0:
                outcome.faults.append(f"exit code {code}: {run.last_output()}")
            return code == 0
