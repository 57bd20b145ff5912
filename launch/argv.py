"""The command line, taken apart: what is this project's own, what is Hydra's, and the overrides."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from run.saving import damaged, trust
from settings.compose import AUTO, as_folder, searching
from settings.hydra_patch import args_parser
from utils import UserError

EXIT_USER_ERROR = 2
_COMPLETIONS = ("install", "uninstall", "query")


class CommandLine(NamedTuple):
    """A command line.

    Attributes:
        argv: the arguments for Hydra.
        resume: a run's folder, `auto`, or None.
        trusted: packages whose classes what is resumed may name.
        without: parts that what is resumed may be left without.
    """

    argv: list[str]
    resume: str | None
    trusted: tuple[str, ...]
    without: tuple[str, ...]


def taken_apart(argv: list[str]) -> CommandLine:
    """Takes off the command line what Hydra is not to see.

    Raises:
        UserError: for what does not go together.
    """
    argv, trusted = take_trust(argv)
    argv, without = take_without(argv)
    argv, resume = take_resume([as_folder(argument) for argument in argv])
    if trusted and not resume:
        raise UserError(f"trust={','.join(trusted)}: it goes with resume=; a new run may name any class")
    if without and resume in (None, AUTO):
        asked = f"{damaged.KEY}={','.join(without)}"
        raise UserError(f"{asked}: it goes with resume=<folder>, which continues one run, and with nothing else")
    return CommandLine(argv, resume, trusted, without)


def say(error: Exception) -> None:
    """What a command ends with, in a line on standard error."""
    print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)


def take_trust(argv: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Takes `trust=` off the command line, as often as it is there.

    Returns:
        The other arguments, and the packages that are named.

    Raises:
        UserError: for what is no package's name.
    """
    return _take("trust", argv, trust.names)


def take_without(argv: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Takes `resume_without=` off the command line, as often as it is there.

    Returns:
        The other arguments, and the parts that are named.

    Raises:
        UserError: for what is no part that a run can go on without.
    """
    return _take(damaged.KEY, argv, damaged.names)


def _take(key: str, argv: list[str], names: Callable[[str], tuple[str, ...]]) -> tuple[list[str], tuple[str, ...]]:
    given = [argument.partition("=")[2] for argument in argv if argument.startswith(f"{key}=")]
    rest = [argument for argument in argv if not argument.startswith(f"{key}=")]
    return rest, tuple(name for text in given for name in names(text))


def take_resume(argv: list[str]) -> tuple[list[str], str | None]:
    """Takes `resume=` off the command line: Hydra cannot parse a folder's name with `=`, `,` or `(` in it.

    Returns:
        The other arguments, and what to resume: a run's folder, `auto`, or None.

    Raises:
        UserError: for two of them, none behind the sign, or a folder together with what only a new run can have.
    """
    found = [argument.partition("=")[2] for argument in argv if argument.startswith("resume=")]
    rest = [argument for argument in argv if not argument.startswith("resume=")]
    if not found:
        return rest, None
    if len(found) > 1 or not found[0]:
        raise UserError("resume=: a run's folder goes here, or auto")
    if found[0] != AUTO:
        for argument in rest:
            if argument.startswith(("-", "hydra.", "hydra/", "+hydra", "~")):
                raise UserError(f"{argument}: not with resume=<folder>, which continues that one run in its own folder")
    return rest, found[0]


def overrides_of(args: Any) -> list[str]:
    """The overrides given, a folder of configurations of one's own among them."""
    return [*args.overrides, *([searching([Path(args.config_dir).resolve()])] if args.config_dir else [])]


class _OneLine(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        hint = "; options go before the first key=value, or after the last" if "=" in message else ""
        raise UserError(message + hint)


def arguments(argv: list[str]) -> Any:
    """Hydra's own options and the overrides.

    Raises:
        UserError: for an option that there is not, or one that leads nowhere.
    """
    parser = args_parser()
    parser.__class__ = _OneLine
    args = parser.parse_args(argv)
    if args.config_path:
        raise UserError(
            f"--config-path={args.config_path}: the configuration is this project's; "
            "--config-dir=<folder> adds one of your own"
        )
    if args.config_dir is not None and not Path(args.config_dir).is_dir():
        raise UserError(f"--config-dir={args.config_dir}: there is no such folder")
    if args.shell_completion and sum(text.partition("=")[0] in _COMPLETIONS for text in args.overrides) != 1:
        raise UserError("--shell-completion: install=bash goes after it; or uninstall= or query=, and zsh or fish")
    return args
