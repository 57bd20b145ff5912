"""Reports the progress of a sweep while it runs: how many runs are done, the time left, and each run's newest return.

Everything is read from the runs' folders, so it works for every launcher. The process that started the sweep reads
them in a thread.
"""

import contextlib
import csv
import math
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from files.reading import open_file, read_text
from run.saving import folder as run_folder
from utils import RunError, command_line

POLL_S = 2.0  # between reads of the folders
REPORT_S = 60.0  # between reports, if no run begins or ends
MOST_LINES = 20  # of runs in one report
TAIL_BYTES = 16_384  # read from the end of a CSV file


@dataclass(frozen=True)
class RunStatus:
    """The state of a run, read from its folder.

    Attributes:
        state: running, finished, pruned or failed.
        total_steps: the run's length; 0 if it is not known.
        last_return: mean return of the newest evaluation; nan before the first.
    """

    name: str
    state: str
    step: int
    total_steps: int
    last_return: float

    @property
    def is_done(self) -> bool:
        return self.state != "running"

    @property
    def share(self) -> float:
        """The fraction of its steps that the run has made, from 0 to 1."""
        if self.state in ("finished", "pruned"):
            return 1.0
        return min(self.step / self.total_steps, 1.0) if self.total_steps else 0.0

    def line(self) -> str:
        is_under_way = self.state == "running" and self.total_steps
        where = f"step {self.step} of {self.total_steps}" if is_under_way else self.state
        result = "" if math.isnan(self.last_return) else f", return {self.last_return:.1f}"
        return f"  {self.name}: {where}{result}"


class SweepReport:
    """Follows the runs of a sweep.

    Args:
        of_study: whether the runs are trials of a study; trials that an earlier start finished do not run again.
    """

    def __init__(self, folder: Path, num_runs: int, of_study: bool = False):
        self._folder = folder
        # Runs of an earlier sweep in this folder do not count until their jobs restart, and Hydra rewrites the files.
        self._before = {path: path.stat().st_mtime_ns for path in self._jobs()}
        before = list(map(self._status, self._before))
        self._num_runs = num_runs - (sum(run.is_done for run in before) if of_study else 0)
        self._share_before = {run.name: run.share for run in before}
        self._started_s = time.monotonic()

    def _jobs(self) -> list[Path]:
        """Returns the files that Hydra writes when a job begins."""
        paths = run_folder.files_below(self._folder, "overrides.yaml")
        return [path for path in paths if path.parent.name == ".hydra"]

    def runs(self) -> list[RunStatus]:
        """Returns the runs that have begun, by name."""
        began = []
        for path in self._jobs():
            with contextlib.suppress(FileNotFoundError):
                if self._before.get(path) != path.stat().st_mtime_ns:
                    began.append(path)
        return [self._status(path) for path in began]

    def _status(self, path: Path) -> RunStatus:
        run = path.parents[1]
        name, total_steps = str(run.relative_to(self._folder)), _total_steps(run)
        if (finished := run_folder.finished(run)) is not None:
            state = "pruned" if run_folder.was_pruned(run) else "finished"
            return RunStatus(name, state, finished[0], total_steps, finished[1])
        state = "failed" if (run / run_folder.FAILED).exists() else "running"
        return RunStatus(name, state, _last_row(run / "train.csv")[0], total_steps, _last_row(run / "eval.csv")[1])

    def is_over(self, runs: list[RunStatus]) -> bool:
        return sum(run.is_done for run in runs) == self._num_runs

    def head(self, runs: list[RunStatus], elapsed_s: float | None = None) -> str:
        """Returns a line such as `3 of 12 done, 2 running, about 14 minutes left`.

        Args:
            elapsed_s: seconds since the sweep began; None measures them.
        """
        elapsed_s = time.monotonic() - self._started_s if elapsed_s is None else elapsed_s
        done = [run for run in runs if run.is_done]
        failed = sum(run.state == "failed" for run in done)
        counted = f"{len(done)} of {self._num_runs} done"
        phrases = [f"{counted} ({failed} failed)" if failed else counted]
        if len(done) < len(runs):
            phrases.append(f"{len(runs) - len(done)} running")
        made = sum(max(0.0, run.share - self._share_before.get(run.name, 0.0)) for run in runs)
        if made > 0 and len(done) < self._num_runs:
            left = self._num_runs - len(done) - sum(run.share for run in runs if not run.is_done)
            phrases.append(f"about {_duration(left / made * elapsed_s)} left")
        return ", ".join(phrases)


def _total_steps(run: Path) -> int:
    try:
        found = re.search(r"^num_train_steps: (\d+)$", read_text(run / "config.yaml"), re.MULTILINE)
    except (OSError, ValueError):
        return 0
    return int(found[1]) if found else 0


def _last_row(path: Path) -> tuple[int, float]:
    """Returns step and return of a CSV file's last whole row; (0, nan) if there is none."""
    try:
        with open_file(path) as file:
            header = file.readline(TAIL_BYTES)
            start = file.tell()
            file.seek(max(start, file.seek(0, 2) - TAIL_BYTES))
            *rows, _ = file.read().split(b"\n")  # after the last line break is a row that is being written, or nothing
        names, values = (next(csv.reader([line.decode().rstrip("\r\n")])) for line in (header, rows[-1]))
        row = dict(zip(names, values, strict=True))
        return int(row["step"]), float(row["episode_reward"])
    except (OSError, ValueError, IndexError, KeyError, StopIteration, csv.Error):
        return 0, math.nan


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return "a minute"
    if minutes < 120:
        return f"{minutes} minute{'s' * (minutes > 1)}"
    return f"{round(minutes / 60)} hours"


def text(report: SweepReport, runs: list[RunStatus], listed: list[RunStatus]) -> str:
    """Returns a report: its head, and a line for each of the listed runs, up to MOST_LINES of them."""
    lines = [f"Sweep: {report.head(runs)}", *(run.line() for run in listed[:MOST_LINES])]
    if len(listed) > MOST_LINES:
        lines.append(f"  and {len(listed) - MOST_LINES} more")
    return "\n".join(lines)


@contextlib.contextmanager
def reported(folder: Path, num_runs: int, of_study: bool = False) -> Iterator[None]:
    """Reports the sweep in a folder within the block: whenever a run begins or ends, once a minute, and at the end."""
    report, ended = SweepReport(folder, num_runs, of_study), threading.Event()

    def follow() -> None:
        states: dict[str, str] = {}
        reported_s = time.monotonic()
        while not ended.wait(POLL_S):
            runs = report.runs()
            now = {run.name: run.state for run in runs}
            is_early = now == states and time.monotonic() - reported_s < REPORT_S
            if is_early or report.is_over(runs):  # the last report follows at once
                continue
            listed = [run for run in runs if not run.is_done or states.get(run.name) != run.state]  # or ended since
            tqdm.write(text(report, runs, listed))
            states, reported_s = now, time.monotonic()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    failure = None
    try:
        yield
    except RunError as error:
        failure = error
    finally:
        ended.set()
    thread.join()  # skipped after Ctrl-C, which is reported without the sweep's state
    runs = report.runs()
    tqdm.write(text(report, runs, runs))
    sys.stdout.flush()
    if failure:
        raise failure
    tqdm.write(f"Folder:  {folder}\nCompare: {command_line('plot.py', str(folder), '--report')}")
