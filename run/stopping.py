"""Signals: the run is saved at the end of its step, and ends with an exit code that says so."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from settings.operating_system import signals

EXIT_INTERRUPTED, EXIT_SAVED = 130, 75  # 75 is EX_TEMPFAIL: run the same command again
Result = TypeVar("Result")
_UNDER_SUBMITIT = "SUBMITIT_EXECUTOR"  # which warns with SIGUSR2, and wants SIGTERM left alone


class Stopped(KeyboardInterrupt):
    """A signal ended the run after its state was saved. Like Ctrl-C, it also ends a sweep.

    Args:
        message: one line.
        exit_code: the exit code of the process.
    """

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


class StopNow(BaseException):
    """Cuts short what changes no state, such as an evaluation."""


class Stopping:
    """Catches the signals that ask a run to end, while it is entered.

    Ctrl-C, SIGTERM and SIGUSR1 (SIGUSR2 under submitit) set `asked`; the loop saves and leaves. A second Ctrl-C ends
    the process at once, and so does the end of the grace period.

    Args:
        grace_s: seconds from a cluster's signal to the end of the process.
    """

    def __init__(self, grace_s: float):
        self._grace_s = grace_s
        self._previous: dict[int, Any] = {}
        self._timer: threading.Timer | None = None
        self._may_cut = False
        self.asked: int | None = None  # the signal

    def __enter__(self) -> "Stopping":
        warnings = signals("SIGUSR2") if _UNDER_SUBMITIT in os.environ else signals("SIGTERM", "SIGUSR1")
        if threading.current_thread() is threading.main_thread():  # elsewhere Python takes no signals
            self._previous = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, *warnings)}
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer:
            self._timer.cancel()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.asked == signal.SIGINT:
            os._exit(EXIT_INTERRUPTED)
        if self.asked is None or number == signal.SIGINT:
            self.asked = number
        if number == signal.SIGINT and sys.stderr.isatty():
            print("\nsaving; a second Ctrl-C ends at once", file=sys.stderr, flush=True)
        if number != signal.SIGINT and self._timer is None:
            self._timer = threading.Timer(self._grace_s, self._give_up)
            self._timer.daemon = True
            self._timer.start()
        if self._may_cut:
            raise StopNow

    def _give_up(self) -> None:
        print(f"not saved within grace_s={self._grace_s:g}; the last checkpoint stays", file=sys.stderr, flush=True)
        os._exit(EXIT_SAVED)

    def cuttable(self, work: Callable[[], Result]) -> Result | None:
        """The result of work that changes no state, or None where a signal cut it short."""
        try:
            self._may_cut = True
            try:
                return work() if self.asked is None else None
            finally:
                self._may_cut = False
        except StopNow:
            return None

    def end(self, message: str) -> None:
        """Ends the run, after its state was saved.

        Raises:
            Stopped: always, unless submitit's own handler ends the process to queue the job again.
        """
        assert self.asked is not None
        handler = self._previous.get(self.asked)
        if self.asked in signals("SIGUSR2") and callable(handler):
            print(message, flush=True)
            handler(self.asked, None)
        raise Stopped(message, EXIT_INTERRUPTED if self.asked == signal.SIGINT else EXIT_SAVED)
