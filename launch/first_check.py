"""Checks the command line before the slow imports: a typing mistake is answered in under a second, without torch and
dm_control."""

import os
import signal
import sys
from types import FrameType

from launch.request import LaunchRequest, read
from run.stopping import EXIT_INTERRUPTED
from settings.operating_system import begin_command
from utils import UserError, print_error

NOT_BEGUN = "interrupted before training began"


def _end(number: int, frame: FrameType | None) -> None:
    """Ends the process at a Ctrl-C before launch.command can: an exception within an import prints a traceback."""
    os.write(2, f"\n{NOT_BEGUN}\n".encode())
    os._exit(EXIT_INTERRUPTED)


def end_first_handler() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt again, once there is something to clean up."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def look(argv: list[str]) -> LaunchRequest:
    """Reads a command line, and ends the process with one line if there is a mistake in a key, a choice or a task."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    try:
        begin_command()
        return read(argv)
    except UserError as error:
        sys.exit(print_error(error))
