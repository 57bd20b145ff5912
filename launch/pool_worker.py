"""What joblib's workers do when a signal ends their sweep: they wait until all runs have saved."""

import os
import signal
import threading
import time
from collections.abc import Callable
from os import _exit  # the original, while envs.errors replaces os._exit
from types import FrameType

from run.stopping import EXIT_SAVED, cluster_signals

POLL_S = 0.1


def until_signal(work: Callable[[], float]) -> float:
    """Calls `work` in one of joblib's workers, which begins no other run after a signal that ends its sweep.

    The sweep's process may get the same signal, and then ends the pool once all runs have saved. Until then the worker
    waits: a pool that misses one worker kills all, with their runs.
    """
    sweep, stopping = os.getppid(), threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        _exit_without(sweep)  # as then the kernel sent the signal
        stopping.set()

    for number in (signal.SIGINT, *cluster_signals()):
        signal.signal(number, stop)
    try:
        return work()
    finally:
        while stopping.is_set():
            _exit_without(sweep)
            time.sleep(POLL_S)


def _exit_without(sweep: int) -> None:
    """Ends this worker if the sweep's process has ended."""
    if os.getppid() != sweep:
        _exit(EXIT_SAVED)
