"""Signals that ask a run to stop: it is saved after its current step, and exits with a code that says so."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

EXIT_INTERRUPTED, EXIT_SAVED = 130, 75  # 75 is EX_TEMPFAIL: run the same command again
Result = TypeVar("Result")


class Stopped(KeyboardInterrupt):
    """A signal ended the run after its state was saved. Like Ctrl-C, it also ends a sweep, and so the process."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message, exit_code)  # a worker of a sweep pickles it
        self.exit_code = exit_code

    def __str__(self) -> str:
        return str(self.args[0])


class Requeued(SystemExit):
    """Exits the process after submitit's handler has requeued the job; the run has not failed."""


class Interrupted(BaseException):
    """Interrupts work that changes no state of the run, such as an evaluation."""


class Stopping:
    """As a context manager, handles the signals that ask a run to stop.

    Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP (SIGUSR2 under submitit) set `signal_number`; the loop then saves the run and
    returns. The process exits at once on a second Ctrl-C.
    """

    def __init__(self) -> None:
        self._previous: dict[int, Any] = {}  # replaced handlers, by signal
        self._may_interrupt = False
        self.signal_number: int | None = None  # that was received

    def __enter__(self) -> "Stopping":
        under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        of_cluster = (signal.SIGTERM, signal.SIGUSR1, *(() if under_nohup else (signal.SIGHUP,)))
        of_cluster = (signal.SIGUSR2,) if "SUBMITIT_EXECUTOR" in os.environ else of_cluster
        if threading.current_thread() is threading.main_thread():  # Python handles no signals in other threads
            self._previous = {n: signal.signal(n, self._handle) for n in (signal.SIGINT, *of_cluster)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT == self.signal_number:
            os._exit(EXIT_INTERRUPTED)
        self.signal_number = number if number == signal.SIGINT else self.signal_number or number
        if number == signal.SIGINT and sys.stderr.isatty():
            print("\nsaving; a second Ctrl-C ends at once", file=sys.stderr, flush=True)
        if self._may_interrupt:
            raise Interrupted

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
        """Ends the run, which has been saved; raises Stopped, or Requeued once submitit has queued the job again."""
        handler = self._previous.get(self.signal_number or 0)
        if self.signal_number == signal.SIGUSR2 and callable(handler):
            print(message, flush=True)
            try:
                handler(self.signal_number, None)
            except SystemExit as end:
                raise Requeued(end.code) from None
        # Many send SIGTERM twice; the second one must not end the process before it has said that it saved.
        self._previous = {n: (lambda *_: None) if old is signal.SIG_DFL else old for n, old in self._previous.items()}
        raise Stopped(message, EXIT_INTERRUPTED if self.signal_number == signal.SIGINT else EXIT_SAVED)
