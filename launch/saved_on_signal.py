"""Lets the runs of a pool save before a signal ends their sweep: the pool itself would kill them."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

import psutil

from launch.own_process import TRAIN
from run.stopping import EXIT_INTERRUPTED, EXIT_SAVED, Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
POLL_S = 0.1


@contextmanager
def saved_on_signal() -> Iterator[None]:
    """In its block, Ctrl-C, SIGTERM and SIGUSR1 end the sweep after the runs that its pool began have saved.

    Raises:
        Stopped: after the first of these signals. A second one ends the process at once; the runs save all the same.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        restore()
        runs = _runs_of_pool()
        if runs:
            print("\nthe runs are saving; a second Ctrl-C does not wait for them", file=sys.stderr, flush=True)
        for run, _ in runs:
            with suppress(psutil.NoSuchProcess):
                run.send_signal(signal.SIGTERM)
        for worker in {worker for _, worker in runs}:
            # All at once: the pool kills a worker that is left, with its run, as soon as it misses another one. So no
            # worker begins another run.
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        while any(_is_alive(run) for run, _ in runs):
            time.sleep(POLL_S)
        ended = "the sweep, after its runs had saved" if runs else "this command"
        code = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_SAVED
        raise Stopped(f"{signal.Signals(number).name} ended {ended}", code)

    for number in SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


def _runs_of_pool() -> list[tuple[psutil.Process, int]]:
    """Returns the processes of runs that workers of this process have begun, each with its worker's id."""
    runs = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if str(TRAIN) in process.cmdline():
                runs.append((process, process.ppid()))
    return runs


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
