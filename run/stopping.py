"""Signals that ask a run to stop: it is saved after its current step, and exits with a code that says so."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from os import _exit  # the original, while envs.errors replaces os._exit
from types import FrameType
from typing import Any, TypeVar

from settings.operating_system import kill_helpers

EXIT_INTERRUPTED, EXIT_SAVED = 130, 75  # 75 is EX_TEMPFAIL: run the same command again
Result = TypeVar("Result")
_UNDER_SUBMITIT = "SUBMITIT_EXECUTOR"  # submitit warns with SIGUSR2, and expects SIGTERM to be ignored


class Stopped(KeyboardInterrupt):
    """A signal ended the run after its state was saved. Like Ctrl-C, it also ends a sweep, and so the process."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


class Requeued(SystemExit):
    """Exits the process after submitit's handler has requeued the job; the run has not failed."""


class Interrupted(BaseException):
    """Interrupts work that changes no state of the run, such as an evaluation."""


class Stopping:
    """As a context manager, handles the signals that ask a run to stop.

    Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP (SIGUSR2 under submitit) set `signal_number`; the loop then saves the run and
    returns. The process exits at once on a second Ctrl-C, and if the run is not saved within the grace period.

    Args:
        grace_s: the grace period, in seconds after a cluster's signal.

    Attributes:
        signal_number: the signal that was received; None before.
    """

    def __init__(self, grace_s: float):
        self._grace_s = grace_s
        self._previous: dict[int, Any] = {}  # replaced handlers, by signal
        self._timer: threading.Timer | None = None
        self._may_interrupt = False
        self.signal_number: int | None = None

    def __enter__(self) -> "Stopping":
        of_cluster = (signal.SIGUSR2,) if _UNDER_SUBMITIT in os.environ else cluster_signals()
        if threading.current_thread() is threading.main_thread():  # Python handles no signals in other threads
            self._previous = {n: signal.signal(n, self._handle) for n in (signal.SIGINT, *of_cluster)}
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer:
            self._timer.cancel()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self.signal_number == signal.SIGINT:
                _exit_at_once(EXIT_INTERRUPTED)
            self.signal_number = number
            if sys.stderr.isatty():
                print("\nsaving; a second Ctrl-C ends at once", file=sys.stderr, flush=True)
        else:
            self.signal_number = self.signal_number or number
            if self._timer is None:
                self._timer = threading.Timer(self._grace_s, self._give_up)
                self._timer.daemon = True
                self._timer.start()
        if self._may_interrupt:
            raise Interrupted

    def _give_up(self) -> None:
        print(f"not saved within grace_s={self._grace_s:g}; the last checkpoint stays", file=sys.stderr, flush=True)
        _exit_at_once(EXIT_SAVED)

    def interruptible(self, work: Callable[[], Result]) -> Result | None:
        """Calls a function that changes no state of the run; returns its result, or None if a signal interrupts it."""
        try:
            self._may_interrupt = True
            try:
                return work() if self.signal_number is None else None
            finally:
                self._may_interrupt = False
        except Interrupted:
            return None

    def end(self, message: str) -> None:
        """Ends the run, which has been saved. From then on, a cluster's signal no longer ends the process by itself.

        Raises:
            Stopped: always, unless submitit's own handler exits the process, to queue the job again.
        """
        assert self.signal_number is not None
        handler = self._previous.get(self.signal_number)
        if self.signal_number == signal.SIGUSR2 and callable(handler):
            print(message, flush=True)
            try:
                handler(self.signal_number, None)
            except SystemExit as end:
                raise Requeued(end.code) from None
        # Many send SIGTERM twice: to the process, and to its group or when its parent ends. The second one must not end
        # it before it has said that it saved, or with another exit code.
        self._previous = {n: _ignore if old is signal.SIG_DFL else old for n, old in self._previous.items()}
        raise Stopped(message, EXIT_INTERRUPTED if self.signal_number == signal.SIGINT else EXIT_SAVED)


def _exit_at_once(code: int) -> None:
    kill_helpers()
    _exit(code)


def cluster_signals() -> tuple[int, ...]:
    """Returns what clusters send before they kill a process, and SIGHUP, which a closed terminal sends, unless nohup
    has it ignored."""
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return signal.SIGTERM, signal.SIGUSR1, *hangup


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignores a signal in this process; programs that it starts do not inherit that, unlike SIG_IGN."""
