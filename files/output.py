"""Standard output and error, which may be closed, or lead to a program that ends first (`| head`)."""

import atexit
import errno
import os
import select
import sys
from types import TracebackType

_LOST = select.POLLERR | select.POLLHUP | select.POLLNVAL if hasattr(select, "poll") else 0


def prepare() -> None:
    """Opens them where a daemon started this process without, and lets the process end silently if nobody reads."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if sys.excepthook is sys.__excepthook__:  # and not a debugger's
        sys.excepthook = _silent_without_reader
    atexit.register(is_lost)  # otherwise Python's own last flush would print an error


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
        lost = error.errno in (errno.EPIPE, errno.EIO)
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
