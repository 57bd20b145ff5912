"""Standard output and error, which may be closed, or lead to a program that ends first (`| head`)."""

import atexit
import errno
import io
import os
import select
import sys
from types import TracebackType
from typing import Any

_NO_READER = (errno.EPIPE, errno.EIO)  # of a pipe, of a terminal
_LOST = select.POLLERR | select.POLLHUP | select.POLLNVAL if hasattr(select, "poll") else 0


def prepare() -> None:
    """Opens them where a daemon started this process without, and lets the process end silently if nobody reads."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:  # mypy needs the second
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(_Unread(sys.stderr.fileno(), "w", closefd=False)),
            encoding=sys.stderr.encoding,
            errors=sys.stderr.errors,
            line_buffering=True,
        )
    if sys.excepthook is sys.__excepthook__:  # and not a debugger's
        sys.excepthook = _silent_without_reader
    atexit.register(is_lost)  # otherwise Python's own last flush would print an error


class _Unread(io.FileIO):
    """Standard error. If nobody reads it any more, what is written is dropped: no message may keep a run from saving,
    or change an exit code."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _NO_READER:
                raise
            return len(data)


def _silent_without_reader(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Acts as `sys.excepthook`, but prints nothing where nobody reads what is printed."""
    if kind is not BrokenPipeError or not is_lost():
        sys.__excepthook__(kind, error, trace)


def is_lost() -> bool:
    """Returns whether the terminal has gone, or what reads standard output; if so, prints go nowhere from now on."""
    try:
        sys.stdout.flush()
        lost = bool(_events(sys.stdout.fileno()) & _LOST)
    except OSError as error:  # also io.UnsupportedOperation, without a number: no file at all, such as a notebook's
        lost = error.errno in _NO_READER
    except (AttributeError, ValueError):  # another object with `write`; or closed
        lost = False
    if lost:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return lost


def _events(number: int) -> int:
    """Returns the events that poll(2) reports of a file descriptor."""
    if not _LOST:
        return 0
    poll = select.poll()
    poll.register(number, 0)
    return sum(events for _, events in poll.poll(0))
