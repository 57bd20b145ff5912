"""The command line, checked before anything is created: a mistake is one line on standard error and exit code 2."""

import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from launch import child, usage
from launch.preflight import arguments, output_folder, overrides_of, prepare
from run import folder as run_folder
from run import salvage, trust
from run.stopping import EXIT_INTERRUPTED
from settings import compose
from settings.check import Settings
from settings.compose import AUTO, CONFIG_DIR, as_folder, compose_config, folders_of, parse
from utils import EnvError, RunError, Stopped, UserError, one_line

EXIT_USER_ERROR, EXIT_STOPPED = 2, 3

# Of a swept value Hydra's escapes and quotes go, too: env=my_pkg\:A-v0 is how Hydra hands a value to its jobs.
SLUG = str.maketrans({"/": "_", ":": "_", "\\": None, "'": None, '"': None})
OmegaConf.register_new_resolver("slug", lambda text: str(text).translate(SLUG), replace=True)
OmegaConf.register_new_resolver("runs_at_once", compose.runs_at_once, replace=True)


def run(
    hydra_main: Callable[[], Any],
    check_machine: Callable[[list[Settings]], None],
    continue_run: Callable[[Path, list[str], str | None, Sequence[str], Sequence[str]], Any],
) -> int:
    """Runs a Hydra entry point and turns what ends it into an exit code.

    Args:
        hydra_main: the function that `hydra.main` decorated.
        check_machine: raises UserError if runs with these settings could not start here.
        continue_run: continues the run in a folder, with overrides of the configuration of a name; then come the
            packages whose classes it may name, and what may be left out of it.
    """
    child.end_with_parent()
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach us instead of being summed up by Hydra
    try:
        argv, trusted = take_trust(sys.argv[1:])
        argv, without = take_without(argv)
        argv, resume = take_resume([as_folder(argument) for argument in argv])
        if trusted and not resume:
            raise UserError(f"trust={','.join(trusted)}: it goes with resume=; a new run may name any class")
        if without and resume in (None, AUTO):
            asked = f"{salvage.KEY}={','.join(without)}"
            raise UserError(f"{asked}: it goes with resume=<folder>, which continues one run, and with nothing else")
        if (said := _explained(argv)) is not None:
            print(said)
            return 0
        there = _begun(argv) if resume == AUTO else (Path(resume), argv, None) if resume else None
        if there:
            continue_run(*there, trusted, without)
        else:
            sys.argv[1:] = prepare(argv, check_machine, resume == AUTO, trusted)
            folder = _sweep_folder(sys.argv[1:])
            if folder is None:
                hydra_main()
            else:
                run_sweep(hydra_main, folder)
    except (UserError, RunError) as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        if isinstance(error, EnvError):
            print(error.trace, end="", file=sys.stderr)
        return EXIT_USER_ERROR if isinstance(error, UserError) else EXIT_STOPPED
    except Stopped as stopped:
        print(f"\n{stopped}", file=sys.stderr)
        return stopped.exit_code
    except KeyboardInterrupt as interrupt:
        print(f"\n{str(interrupt) or 'interrupted before training began'}", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def _explained(argv: list[str]) -> str | None:
    """What `--tasks` or `--help` ask for; None for any other command."""
    if "--tasks" in argv:
        return usage.tasks_text()
    args = arguments(argv)
    return usage.help_text(folders_of(overrides_of(args))) if args.help else None


def run_sweep(hydra_main: Callable[[], Any], folder: Path) -> None:
    """Runs a sweep to its end, and says what failed in it.

    Raises:
        RunError: if anything did; the message has a line for each.
    """
    paths = [str(CONFIG_DIR.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for workers that start elsewhere
    before = run_folder.failures(folder)
    broke_off = []
    try:
        hydra_main()
    except Exception as error:  # not a run's, but the launcher's or the sweeper's
        if str(error) in ("Record does not exist.", "No trials are completed yet."):  # Optuna's, of the best trial
            raise RunError("every trial failed; the lines above say why") from None
        if not isinstance(error, UserError | RunError):
            traceback.print_exc()
        broke_off = [f"the sweep broke off: {one_line(error) or type(error).__name__}"]
    # A trial that failed is one of a study's results.
    failed = [] if (folder / "tuning.yaml").exists() else run_folder.new_failures(folder, before)
    if broke_off or failed:
        count = [f"{len(failed)} of the sweep's runs failed:"] if failed else []
        named = shlex.quote(f"hydra.sweep.dir={folder}")
        again = f"to run what is missing, repeat the same command with resume={AUTO} {named}"
        raise RunError("\n  ".join([*broke_off, *count, *failed, again]))


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
    return _take(salvage.KEY, argv, salvage.names)


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


def _begun(argv: list[str]) -> tuple[Path, list[str], str | None] | None:
    """For `resume=auto` of one run: its folder, the overrides and the configuration's name, if it has a checkpoint."""
    args = arguments(argv)
    base = overrides_of(args)
    if args.multirun or not any(override.key_or_group == "hydra.run.dir" for override in parse(base)):
        return None
    config = compose_config(args.config_name or "train", base)
    folder = output_folder(config, "hydra.run.dir")
    if str(config.hydra.mode) == "RunMode.MULTIRUN" or not any(folder.glob("checkpoints/step_*")):
        return None
    return folder, [text for text in base if not text.startswith("hydra.run.")], args.config_name


def _sweep_folder(argv: list[str]) -> Path | None:
    """The folder that `preflight.prepare` claimed for a sweep; None for anything else."""
    last = argv[-1] if argv else ""
    return Path(str(parse([last])[0].value())) if last.startswith("hydra.sweep.dir=") else None
