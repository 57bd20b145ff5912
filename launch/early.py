"""A first look at the command line, before torch and dm_control are imported: a mistake need not wait for them.

It composes and checks as the whole check does (launch/preflight.py), with stand-ins where classes stand on torch. What
it cannot know so it leaves to the whole check, which comes after it in any case.
"""

import sys

from envs import names
from launch.asked import Asked, begun, read
from launch.line import EXIT_USER_ERROR, say, taken_apart
from settings.compose import AUTO
from settings.operating_system import require_posix
from settings.stand_ins import LaterError, stand_ins
from utils import UserError


def look(argv: list[str]) -> Asked | None:
    """Ends the process, with a line, if there is a mistake in what the command line asks for.

    Returns:
        What it composed, for the whole check; None where it could not, or there is nothing to compose.

    Raises:
        SystemExit: after that line.
    """
    try:
        require_posix()
        asked = _composed(argv)
        if asked is not None:
            _check(asked)
        return asked
    except UserError as error:
        say(error)
        sys.exit(EXIT_USER_ERROR)
    except Exception:  # the whole check meets it too
        return None


def _composed(argv: list[str]) -> Asked | None:
    line = taken_apart(argv)
    if "--tasks" in line.argv or line.resume not in (None, AUTO) or (line.resume == AUTO and begun(line.argv)):
        return None  # no new run, and what is there says what may be asked of it
    return read(line.argv)


def _check(asked: Asked) -> None:
    try:
        with stand_ins():
            runs = asked.settings()
    except LaterError:
        return
    for cfg in runs:
        names.require_known(cfg.env)
