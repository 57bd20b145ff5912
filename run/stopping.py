"""Signals that ask a run to stop: it is saved after its current step, and exits with a code that says so."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

EXIT_INTERRUPTED, EXIT_SAVED = 130, 75  # 75 is EX_TEMPFAIL: run the same command again
Result = TypeVar("Result")


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
    returns. The process exits at once on a second Ctrl-C. It is killed `grace_s` seconds after a signal (see `watch`).
    """

    def __init__(self, grace_s: float):
        self._grace_s = grace_s
        self._previous: dict[int, Any] = {}  # replaced handlers, by signal
        self._watch: subprocess.Popen[bytes] | None = None
        self._may_interrupt = False
        # The signal that was received; in a sweep's worker perhaps before the run (launch/sweeps.py).
        self.signal_number: int | None = signal.SIGTERM if "SWEEP_IS_STOPPING" in os.environ else None

    def __enter__(self) -> "Stopping":
        under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        of_cluster = (signal.SIGTERM, signal.SIGUSR1, *(() if under_nohup else (signal.SIGHUP,)))
        of_cluster = (signal.SIGUSR2,) if "SUBMITIT_EXECUTOR" in os.environ else of_cluster
        if threading.current_thread() is threading.main_thread():  # Python handles no signals in other threads
            self._previous = {n: signal.signal(n, self._handle) for n in (signal.SIGINT, *of_cluster)}
            if self._grace_s < threading.TIMEOUT_MAX:
                command = [sys.executable, "-IS", __file__, str(os.getpid()), str(self._grace_s)]
                command += [str(int(number)) for number in self._previous]
                self._watch = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
                os.set_blocking(self._watch.stdin.fileno(), False)  # type: ignore[union-attr]
                signal.set_wakeup_fd(self._watch.stdin.fileno(), warn_on_full_buffer=False)  # type: ignore[union-attr]
        return self

    def __exit__(self, *_: object) -> None:
        if self._watch:
            signal.set_wakeup_fd(-1)
            self._watch.kill()
            self._watch.communicate()
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


def watch(process: int, grace_s: float, numbers: list[int]) -> None:
    """Runs as a program of its own: kills a process `grace_s` seconds after it has received one of the signals.

    Python's C code writes the numbers of signals to this program's standard input at once, while a handler in Python
    has to wait for an environment that hangs in C.
    """
    while received := os.read(0, 1):
        if received[0] in numbers:
            time.sleep(grace_s)
            print(f"not saved within grace_s={grace_s:g}; the last checkpoint stays", file=sys.stderr, flush=True)
            os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    watch(int(sys.argv[1]), float(sys.argv[2]), [int(number) for number in sys.argv[3:]])
