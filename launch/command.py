"""Runs a command line and returns its exit code. An error becomes one line."""

import os
import shlex
import sys
import traceback
from pathlib import Path

import hydra
from omegaconf import DictConfig

from launch import job, own_process, preflight, sweep_report, usage
from launch.first_check import NOT_BEGUN, end_first_handler
from launch.request import LaunchRequest, read
from launch.saved_on_signal import saved_on_signal
from run.saving import folder as run_folder
from run.stopping import EXIT_INTERRUPTED, Stopped
from settings.compose import AUTO, CONFIG_DIR, folders_of
from utils import RunError, UserError, one_line, print_error


@hydra.main(version_base="1.3", config_path=str(CONFIG_DIR), config_name="train")
def hydra_main(config: DictConfig) -> float:
    """Runs Hydra's job in a sweep; returns the mean return of the final evaluation."""
    return job.run_in_sweep(config)


def main(request: LaunchRequest | None = None) -> int:
    """Executes a request, or for None what the command line requests; returns the exit code."""
    own_process.end_with_parent()
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach us instead of being summed up by Hydra
    try:
        end_first_handler()
        request = request or read(sys.argv[1:])
        _do(request)
    except (UserError, RunError) as error:
        return print_error(error)
    except SystemExit as error:
        if request is None or not (request.runs or request.continued):  # after help or --version
            raise
        return print_error(
            RunError(f"{type(error).__name__} {error}; it would have ended the process without a message")
        )
    except Stopped as stopped:
        print(f"\n{stopped}", file=sys.stderr)
        return stopped.exit_code
    except KeyboardInterrupt as interrupt:
        print(f"\n{str(interrupt) or NOT_BEGUN}", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def _do(request: LaunchRequest) -> None:
    line, runs = request.line, request.runs
    if line.options.tasks:
        print(usage.tasks_text())
    elif line.options.help:
        print(usage.help_text(folders_of(line.overrides)))
    elif request.continued:
        job.continue_run(*request.continued, line.trusted)
    elif runs is None:  # Hydra prints its own help, or a configuration
        sys.argv[1:] = line.argv
        hydra_main()
    elif runs.sweeping:
        sys.argv[1:], folder = preflight.prepare_sweep(request)
        with sweep_report.reported(folder, runs.number, of_study=runs.tunes):
            run_sweep(folder, is_study=runs.tunes)
    else:
        job.begin_run(preflight.prepare_run(request), may_continue=line.resume == AUTO)


def run_sweep(folder: Path, is_study: bool = False) -> None:
    """Runs a sweep to its end. If runs failed, raises a RunError whose message has a line for each.

    Args:
        is_study: in a study, a failed trial is a result, not an error.
    """
    paths = [str(CONFIG_DIR.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for workers that start elsewhere
    before = run_folder.failures(folder)
    named = shlex.quote(f"hydra.sweep.dir={folder}")
    how_to_repeat = f"repeat the same command with resume={AUTO} {named}"
    broke_off = []
    try:
        with saved_on_signal():
            hydra_main()
    except RunError:  # the sweeper's last line
        raise
    except Stopped as stopped:  # its runs were saved
        raise Stopped(f"{stopped}\nto continue the sweep, {how_to_repeat}", stopped.exit_code) from None
    except Exception as error:  # raised by the launcher or the sweeper, not by a run
        if not isinstance(error, UserError):
            traceback.print_exc()
        broke_off = [f"the sweep broke off: {one_line(error) or type(error).__name__}"]
    failed = [] if is_study else run_folder.new_failures(folder, before)
    if broke_off or failed:
        count = [f"{len(failed)} of the sweep's runs failed:"] if failed else []
        raise RunError("\n  ".join([*broke_off, *count, *failed, f"to run what is missing, {how_to_repeat}"]))
