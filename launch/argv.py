"""Splits the command line by kind of argument: this project's own keys, Hydra's options and the overrides."""

import argparse
import re
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from run.saving import trust
from settings.compose import AUTO, as_folder, searching
from settings.hydra_patch import args_parser
from utils import UserError

_COMMANDS = ("run", "multirun", "cfg", "info", "hydra_help", "shell_completion")  # Hydra's; it accepts one at a time
_COMPLETIONS = ("install", "uninstall", "query")


class CommandLine(NamedTuple):
    """A command line without the keys that Hydra must not see.

    Attributes:
        argv: arguments for Hydra.
        resume: folder of the run to continue, `auto`, or None.
        trusted: packages and paths that the saved configuration of a resumed run may name.
        options: Hydra's own options, parsed; `overrides` is among them.
    """

    argv: list[str]
    resume: str | None
    trusted: tuple[str, ...]
    options: Any

    @property
    def overrides(self) -> list[str]:
        """The overrides, with `--config-dir` as one of them."""
        folder = self.options.config_dir
        return [*self.options.overrides, *([searching([Path(folder).resolve()])] if folder else [])]


def parse_line(argv: list[str]) -> CommandLine:
    """Splits a command line; refuses keys and options that are wrong, or that do not go together."""
    argv = [argument for argument in argv if argument != "preset=null"]  # the default, which Hydra does not take
    argv, packages = _take(argv, "trust")
    trusted = tuple(name for text in packages for name in trust.names(text))
    argv, resume = take_resume([as_folder(argument) for argument in argv])
    if trusted and not resume:
        raise UserError(f"trust={','.join(trusted)}: it goes with resume=; a new run may name any class")
    return CommandLine(argv, resume, trusted, _options(argv))


def _take(argv: list[str], key: str) -> tuple[list[str], list[str]]:
    """Takes every `key=` off the command line; returns the other arguments, and its values."""
    values = [argument.partition("=")[2] for argument in argv if argument.startswith(f"{key}=")]
    return [argument for argument in argv if not argument.startswith(f"{key}=")], values


def take_resume(argv: list[str]) -> tuple[list[str], str | None]:
    """Takes `resume=` off the command line: Hydra cannot parse a folder's name with `=`, `,` or `(` in it.

    Returns:
        The other arguments, and what to resume: a run's folder, `auto`, or None.
    """
    rest, values = _take(argv, "resume")
    if not values:
        return rest, None
    if len(set(values)) > 1 or not values[0]:
        raise UserError("resume=: a run's folder goes here, or auto")
    if values[0].lower() in ("true", "yes", "1", "last", "latest") and not Path(values[0]).exists():
        raise UserError(f"resume={values[0]}: a run's folder goes here, or auto")
    if values[0] != AUTO:
        for argument in rest:
            if argument.startswith(("-", "hydra.", "hydra/", "+hydra", "~")):
                raise UserError(f"{argument}: not with resume=<folder>, which continues that one run in its own folder")
    return rest, values[0]


class _OneLine(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        hint = "; options go before the first key=value, or after the last" if "=" in message else ""
        if key := re.fullmatch("unrecognized arguments: --([a-z_]+)( .*)?", message):
            hint = f"; keys have no dashes: {key[1]}=..."
        raise UserError(message + hint)


def _options(argv: list[str]) -> Any:
    parser = args_parser()
    parser.__class__ = _OneLine
    # `--tasks` is this project's own, and --help prints more than Hydra's.
    options = parser.parse_args([argument for argument in argv if argument != "--tasks"])
    options.tasks = "--tasks" in argv
    if options.config_path:
        hint = "the configuration is this project's; --config-dir=<folder> adds one of your own"
        raise UserError(f"--config-path={options.config_path}: {hint}")
    if options.config_name == "":
        raise UserError("--config-name=: the name of a configuration goes here")
    options.config_name = options.config_name or "train"
    commands = [name for name in _COMMANDS if getattr(options, name)]
    if len(commands) > 1:
        raise UserError(" ".join(f"--{name.replace('_', '-')}" for name in commands) + ": only one of them at a time")
    if (options.package or options.resolve) and not options.cfg:
        raise UserError(f"--{'package' if options.package else 'resolve'}: it goes with --cfg, which prints settings")
    if options.experimental_rerun:
        hint = "it would run whatever code that file holds; resume=<folder> continues a run"
        raise UserError(f"--experimental-rerun={options.experimental_rerun}: {hint}")
    if options.config_dir is not None and not (options.config_dir and Path(options.config_dir).is_dir()):
        raise UserError(f"--config-dir={options.config_dir}: there is no such folder")
    if options.shell_completion and sum(text.partition("=")[0] in _COMPLETIONS for text in options.overrides) != 1:
        raise UserError("--shell-completion: install=bash goes after it; or uninstall= or query=, and zsh or fish")
    return options
