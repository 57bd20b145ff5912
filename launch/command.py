"""The command line, checked before anything is created: a mistake is one line on standard error and exit code 2."""

import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

from launch import job, own_process, usage
from launch.argv import EXIT_USER_ERROR, arguments, overrides_of, say, taken_apart
from launch.preflight import check_machine, prepare
from launch.request import LaunchRequest, begun
from run import workspace
from run.saving import folder as run_folder
from run.stopping import EXIT_INTERRUPTED, Stopped
from settings.compose import AUTO, CONFIG_DIR, folders_of, parse
from settings.schema import Settings
from utils import EnvError, RunError, UserError, one_line

EXIT_STOPPED = 3


def train(config: DictConfig) -> float:
    """Hydra's job; returns the mean return of the final evaluation."""
    return job.run(config, workspace.train)


hydra_main = hydra.main(version_base="1.3", config_path=str(CONFIG_DIR), config_name="train")(train)


def continue_run(
    folder: Path,
    overrides: list[str],
    config_name: str | None = None,
    trusted: Sequence[str] = (),
    without: Sequence[str] = (),
) -> float:
    """Continues a run (see launch.job.continue_run) without its damaged parts (see run/saving/damaged.py)."""
    return job.continue_run(folder, overrides, config_name, trusted, partial(workspace.train, without=without))


def main(asked: LaunchRequest | None = None) -> int:
    """What the command line asks for, of which a first look may have composed it; returns the exit code."""
    return run(hydra_main, check_machine, continue_run, asked)


def run(
    hydra_main: Callable[[], Any],
    check_machine: Callable[[list[Settings]], None],
    continue_run: Callable[[Path, list[str], str | None, Sequence[str], Sequence[str]], Any],
    asked: LaunchRequest | None = None,
) -> int:
    """Runs a Hydra entry point and turns what ends it into an exit code.

    Args:
        hydra_main: the function that `hydra.main` decorated.
        check_machine: raises UserError if runs with these settings could not start here.
        continue_run: continues the run in a folder, with overrides of the configuration of a name; then come the
            packages whose classes it may name, and what may be left out of it.
        asked: what a first look composed of the command line (launch/first_check.py).
    """
    own_process.end_with_parent()
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach us instead of being summed up by Hydra
    try:
        argv, resume, trusted, without = taken_apart(sys.argv[1:])
        if (said := _explained(argv)) is not None:
            print(said)
            return 0
        there = begun(argv) if resume == AUTO else (Path(resume), argv, None) if resume else None
        if there:
            continue_run(*there, trusted, without)
        else:
            sys.argv[1:] = prepare(argv, check_machine, resume == AUTO, trusted, asked)
            folder = _sweep_folder(sys.argv[1:])
            if folder is None:
                hydra_main()
            else:
                run_sweep(hydra_main, folder)
    except (UserError, RunError) as error:
        say(error)
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
    except RunError:  # the sweeper's last line
        raise
    except Exception as error:  # not a run's, but the launcher's or the sweeper's
        if not isinstance(error, UserError):
            traceback.print_exc()
        broke_off = [f"the sweep broke off: {one_line(error) or type(error).__name__}"]
    # A trial that failed is one of a study's results.
    failed = [] if (folder / "tuning.yaml").exists() else run_folder.new_failures(folder, before)
    if broke_off or failed:
        count = [f"{len(failed)} of the sweep's runs failed:"] if failed else []
        named = shlex.quote(f"hydra.sweep.dir={folder}")
        again = f"to run what is missing, repeat the same command with resume={AUTO} {named}"
        raise RunError("\n  ".join([*broke_off, *count, *failed, again]))


def _sweep_folder(argv: list[str]) -> Path | None:
    """The folder that `preflight.prepare` claimed for a sweep; None for anything else."""
    last = argv[-1] if argv else ""
    return Path(str(parse([last])[0].value())) if last.startswith("hydra.sweep.dir=") else None
