"""The command line is read before torch and dm_control are imported: a typing mistake is answered in under a second."""

import sys

from launch.request import LaunchRequest, read
from settings.operating_system import require_posix
from utils import UserError, print_error

EXIT_USER_ERROR = 2


def look(argv: list[str]) -> LaunchRequest:
    """Reads a command line, and ends the process with one line if there is a mistake in a key, a choice or a task.

    Raises:
        SystemExit: after that line.
    """
    try:
        require_posix()
        return read(argv)
    except UserError as error:
        print_error(error)
        sys.exit(EXIT_USER_ERROR)
