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
        runs: dict[psutil.Process, psutil.Process] = {}
        asked: set[psutil.Process] = set()
        try:
            # The workers live on meanwhile: as soon as the pool misses one, it kills all, with their runs.
            while runs := _runs_of_pool():
                for run in runs.keys() - asked:
                    _ask(run, runs[run])
                if not asked:
                    print("\nthe runs are saving; a second Ctrl-C does not wait for them", file=sys.stderr, flush=True)
                asked |= runs.keys()
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            for worker in runs.values():
                _send(worker, signal.SIGKILL)
            os._exit(EXIT_INTERRUPTED)  # before the pool misses them
        ended = "the sweep, after its runs had saved" if asked else "this command"
        code = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_SAVED
        raise Stopped(f"{signal.Signals(number).name} ended {ended}", code)

    for number in SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


def _runs_of_pool() -> dict[psutil.Process, psutil.Process]:
    """Returns the processes of runs that workers of this process have begun, while they run, each with its worker."""
    runs = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if str(TRAIN) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                runs[process] = psutil.Process(process.ppid())
    return runs


def _ask(run: psutil.Process, worker: psutil.Process) -> None:
    """Asks a run to save and end, and first its worker to begin no other."""
    _send(worker, signal.SIGINT)  # see launch/own_process.py
    _send(run, signal.SIGTERM)


def _send(process: psutil.Process, number: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
