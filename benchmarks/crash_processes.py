"""Starts, awaits and kills the processes of the crash test."""

import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Outcome:
    """The counts of one scenario."""

    runs: int = 0  # finished and compared with an undisturbed one
    sigkills: int = 0
    sigterms: int = 0
    during_a_write: int = 0  # SIGKILLs that left half a checkpoint, or came after a command had changed a file
    fresh_interpreters: int = 0
    faults: list[str] = field(default_factory=list)


def start(program: str, arguments: list[str], log: Path, fresh: bool = False) -> int:
    """Starts a script of the repository in a process group of its own; returns the process id.

    Args:
        log: the file to which the process appends its output.
        fresh: whether to start a new interpreter; otherwise forks this process, which has imported everything.
    """
    if fresh:
        with log.open("ab") as file:
            command = [sys.executable, program, *arguments]
            return subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, start_new_session=True).pid
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        log_to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log_to, 1), os.dup2(log_to, 2)
        sys.argv = [program, *arguments]
        runpy.run_path(str(ROOT / program), run_name="__main__")
    except SystemExit as end:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 1 if end.code else 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(0)


def wait(process: int, seconds: float) -> int | None:
    """Returns the exit code (negative for a signal), or None if the process still runs after `seconds`."""
    until_s = time.perf_counter() + seconds
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.perf_counter() >= until_s:
            return None
        time.sleep(0.001)


def kill_group(process: int) -> None:
    """Sends SIGKILL to the process group: the process, if it still runs, and those that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], seconds: float = 2) -> None:
    """Returns when the condition holds, or after `seconds`."""
    until_s = time.perf_counter() + seconds
    while not condition() and time.perf_counter() < until_s:
        time.sleep(0.0005)


def last_output(log: Path) -> str:
    """Returns the last three lines of a log."""
    return " / ".join(log.read_text(errors="replace").splitlines()[-3:])
