"""A first look at the command line, before torch and dm_control are imported.

It finds what Hydra alone can find (an unknown key, choice or preset) and a task that does not exist, in under a second.
The values are checked once the classes that they go to are imported (launch/preflight.py).
"""

import sys

from envs import names
from launch.argv import EXIT_USER_ERROR, say, taken_apart
from launch.request import LaunchRequest, begun, read
from settings.compose import AUTO, plain
from settings.operating_system import require_posix
from utils import UserError


def look(argv: list[str]) -> LaunchRequest | None:
    """Composes the runs that a command line asks for, and ends the process with a line if there is a mistake in it.

    Returns:
        The composed runs; None for a run that is resumed, whose folder says what may be asked of it, and for help.

    Raises:
        SystemExit: after that line.
    """
    try:
        require_posix()
        line = taken_apart(argv)
        if "--tasks" in line.argv or line.resume not in (None, AUTO) or (line.resume == AUTO and begun(line.argv)):
            return None
        asked = read(line.argv)
        for config in asked.configs if asked else ():
            names.require_known(str(plain(config)["env"]))
        return asked
    except UserError as error:
        say(error)
        sys.exit(EXIT_USER_ERROR)
