"""Trains an agent: `python train.py env=cheetah_run`.

Hydra composes config/train.yaml with the command line's overrides. launch/checks.py checks the values before Hydra
makes the run's folder; run/resume.py begins the run there or continues it, run/workspace.py builds its parts, and
run/loop.py trains. A sweep (-m) calls `run_job` for each of its runs, perhaps in other processes.
"""

import contextlib
import os
import shutil
import sys
import traceback
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from launch import sweeps
from launch.checks import AUTO, Ending, explain
from run.stopping import EXIT_INTERRUPTED
from settings.compose import CONFIG_DIR
from settings.env_ids import format_tasks
from utils import RunError, UserError, one_line

EXIT_MISTAKE, EXIT_FAULT = 2, 3


@hydra.main(version_base="1.3", config_path=str(CONFIG_DIR), config_name="train")
def run_job(config: DictConfig) -> float:
    """Trains one run in the folder that Hydra made; returns the mean return of its last evaluation."""
    # The callback launch.checks.CheckFirst (config/train.yaml) has refused wrong settings before this.
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    if hydra_config.mode is RunMode.MULTIRUN:
        return sweeps.run_one(config, hydra_config, folder)
    from run.resume import begin_or_continue  # imports torch, so not before the configuration is composed

    try:
        return begin_or_continue(config, folder, may_continue=config.resume == AUTO)
    except Exception as error:
        if isinstance(error, UserError) and not (folder / "config.yaml").exists():
            _remove_traces(folder, hydra_config.job.name)
        raise Ending from error


def main() -> int:
    """Executes the command line; returns the exit code."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach this function instead of being summed up by Hydra
    arguments = sys.argv[1:]
    try:
        if "--tasks" in arguments:
            print(format_tasks())
        elif any(text.startswith("resume=") and text != f"resume={AUTO}" for text in arguments):
            _continue_run(arguments)
        else:
            # For a sweep's workers, which start elsewhere.
            os.environ["PYTHONPATH"] = os.pathsep.join(
                filter(None, [str(CONFIG_DIR.parent), os.environ.get("PYTHONPATH")])
            )
            run_job()
    except Ending as ending:
        return _report(ending.__cause__)
    except Exception as error:
        return _report(error)
    except KeyboardInterrupt as interrupt:  # a signal, after the run has been saved (run/stopping.py)
        print(f"\n{interrupt or 'interrupted'}", file=sys.stderr)
        return getattr(interrupt, "exit_code", EXIT_INTERRUPTED)
    return 0


def _continue_run(arguments: list[str]) -> None:
    """Continues the run of `resume=<folder>`; its configuration is the saved one, so Hydra composes none."""
    values: dict[str, list[str]] = {"resume": [], "trust": []}
    overrides: list[str] = []
    for text in arguments:
        key, _, value = text.partition("=")
        values.get(key, overrides).append(value if key in values else text)
    from run.resume import continue_run

    trusted = [name for text in values["trust"] for name in text.split(",")]
    continue_run(Path(values["resume"][-1]), overrides, trusted)


def _report(error: BaseException | None) -> int:
    """Prints how the command ended: a mistake in one line, a fault of someone's code with its traceback."""
    if isinstance(error, HydraException | OmegaConfBaseException):
        error = explain(error)
    if isinstance(error, UserError | RunError):
        print(f"train.py: {one_line(error) if isinstance(error, UserError) else error}", file=sys.stderr)
        return EXIT_MISTAKE if isinstance(error, UserError) else EXIT_FAULT
    traceback.print_exception(error)
    return EXIT_FAULT


def _remove_traces(folder: Path, job_name: str) -> None:
    """Deletes what Hydra wrote for a run that could not be built, and folders that are empty then."""
    shutil.rmtree(folder / ".hydra")
    for name in (f"{job_name}.log", ".lock"):
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty
        for path in (folder, folder.parent, folder.parent.parent):
            path.rmdir()


if __name__ == "__main__":
    sys.exit(main())
