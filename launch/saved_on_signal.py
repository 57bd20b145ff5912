"""Lets the runs of a pool save before a signal ends their sweep: the pool itself would kill them."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import _exit  # the original, while envs.errors replaces os._exit
from types import FrameType
from typing import NoReturn

import psutil

from launch.own_process import TRAIN
from launch.pool_worker import POLL_S
from run.stopping import EXIT_INTERRUPTED, EXIT_SAVED, Stopped, cluster_signals


@contextmanager
def saved_on_signal() -> Iterator[None]:
    """In its block, Ctrl-C and a cluster's signals end the sweep after the runs that its pool began have saved.

    A second Ctrl-C ends the process at once; the runs save all the same.

    Raises:
        Stopped: after the first of these signals.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *cluster_signals())}

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        for each in before:  # a cluster may send its signal more than once
            signal.signal(each, lambda *_: None)
        signal.signal(signal.SIGINT, lambda *_: _exit(EXIT_INTERRUPTED))
        asked: set[psutil.Process] = set()
        # The workers live on meanwhile: as soon as the pool misses one, it kills all, with their runs.
        while (runs := _runs_of_pool()) or any(_is_alive(run) for run in asked):
            for run in runs.keys() - asked:
                _send(runs[run], signal.SIGINT)  # so that this worker begins no other (see launch/pool_worker.py)
                _send(run, signal.SIGTERM)
            if not asked:
                print("\nthe runs are saving; a second Ctrl-C does not wait for them", file=sys.stderr, flush=True)
            asked |= runs.keys()
            time.sleep(POLL_S)
        ended = "the sweep, after its runs had saved" if asked else "this command"
        code = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_SAVED
        raise Stopped(f"{signal.Signals(number).name} ended {ended}", code)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _runs_of_pool() -> dict[psutil.Process, psutil.Process]:
    """Returns the processes of runs that workers of this process have begun, while they run, each with its worker."""
    runs = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if str(TRAIN) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                runs[process] = psutil.Process(process.ppid())
    return runs


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _send(process: psutil.Process, number: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
