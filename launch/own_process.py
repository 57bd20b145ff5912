"""A pool worker's run as a child process: starts train.py by its path, and ends with the worker that wants it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from files.reading import NO_LIMIT, open_file
from files.writing import append_file
from run.machine import PARENT
from settings.operating_system import terminate_with_parent
from utils import RunError

TRAIN = Path(__file__).resolve().parents[1] / "train.py"
CONSOLE = "console.txt"
TAIL_BYTES = 2**20  # of a failed run's output, which is searched for the reason


def run(arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Runs `python train.py <arguments>` to its end; its output is appended to `console.txt` in the folder.

    The variables of `environment` are added to this process's.

    Raises:
        RunError: with the last line it wrote, or the signal that killed it.
    """
    with append_file(folder / CONSOLE) as console:
        start = console.tell()
        command = [sys.executable, str(TRAIN), *arguments]
        environment = {**os.environ, **environment, PARENT: str(os.getpid())}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=environment)
        try:
            code = process.wait()
        except BaseException:  # this worker is being stopped: the run saves, within its grace_s
            process.terminate()
            process.wait()
            raise
    if code < 0:
        raise RunError(f"killed by {signal.Signals(-code).name}")
    if code:
        with open_file(folder / CONSOLE, NO_LIMIT) as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            written = file.read().decode(errors="replace")
        lines = [line.strip() for line in written.splitlines() if line.strip()]
        said = [line for line in lines if line.startswith("train.py: ")] or lines  # a traceback may follow it
        raise RunError(said[-1].removeprefix("train.py: ") if said else f"ended with exit code {code}")


def end_with_parent() -> None:
    """In a run that a worker started, requests SIGTERM when that worker ends, so that the orphaned run saves and stops.

    Raises:
        SystemExit: if the worker has ended already.
    """
    parent = os.environ.get(PARENT)
    if parent is None:
        return
    terminate_with_parent()
    if os.getppid() != int(parent):
        sys.exit(f"process {parent}, which wanted this run, has ended")
