"""Runs one new, swept or resumed run."""

import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from hydra._internal.callbacks import Callbacks
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobStatus, run_job
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, open_dict

from launch import own_process
from launch.preflight import PreparedRun
from launch.pruning import Trial
from run.checkpoint import list_checkpoints
from run.saving import folder as run_folder
from run.saving import resume
from run.stopping import Requeued
from run.workspace import Workspace
from settings import compose
from settings.schema import Settings, check
from utils import EnvError, RunError, UserError, one_line


def begin_run(run: PreparedRun, may_continue: bool = False) -> None:
    """Trains a run whose parts are built, as a Hydra job, so that Hydra writes `.hydra/` and sets up Python's logging.

    Hands Hydra the configuration that was composed and checked; Hydra would compose it again.

    Args:
        may_continue: accept the folder of a run that ended before its first checkpoint.
    """
    config = run.config
    with open_dict(config.hydra):
        config.hydra.run.dir = str(run.folder)
        config.hydra.mode = RunMode.RUN
    callbacks = Callbacks(config)
    name = config.hydra.job.config_name
    callbacks.on_run_start(config=config, config_name=name)
    trial = Trial.of_process()
    prune = partial(trial.is_worse, run.folder, run.cfg) if trial else None

    def begin(_: DictConfig) -> float:
        os.chdir(HydraConfig.get().runtime.cwd)  # whatever hydra.job.chdir is: relative paths start here
        return train(run.cfg, run.folder, prune)

    result = run_job(
        task_function=begin,
        config=config,
        job_dir_key="hydra.run.dir",
        job_subdir_key=None,
        hydra_context=HydraContext(config_loader=None, callbacks=callbacks),  # type: ignore[arg-type]  # not used here
    )
    callbacks.on_run_end(config=config, config_name=name, job_return=result)
    if result.status is JobStatus.FAILED:
        raise result._return_value  # `return_value` would print a line of Hydra's first


def run_in_sweep(config: DictConfig) -> float:
    """Executes one run of a sweep as Hydra's job, in the folder that Hydra made.

    Returns:
        The mean return of the final evaluation; nan for a run that failed.
    """
    hydra_config = HydraConfig.get()
    os.chdir(hydra_config.runtime.cwd)  # relative paths in the settings start here, not in a worker's own directory
    folder = Path(hydra_config.runtime.output_dir)
    fixed = hydra_config.job.config.override_dirname.exclude_keys
    swept = [_shown(one) for one in compose.parse(list(hydra_config.overrides.task)) if one.key_or_group not in fixed]
    return guarded(lambda: _in_folder(config, folder), folder, swept)


def guarded(work: Callable[[], float], folder: Path, overrides: list[str]) -> float:
    """Executes one run of a sweep. A failure is recorded in the run's folder, and does not end the sweep.

    Args:
        overrides: the overrides that distinguish the run from the others, for the report.

    Returns:
        The mean return of the final evaluation; nan if the run failed.

    Raises:
        RunError: if the run failed and its folder, which would record that, is gone.
    """
    run_folder.unmark_failed(folder)
    try:
        return work()
    except Requeued:
        raise
    except (Exception, SystemExit) as error:
        is_message = isinstance(error, UserError | RunError)
        if isinstance(error, EnvError):
            print(error.trace, end="", file=sys.stderr)
        elif not is_message:
            traceback.print_exc()
        reason = one_line(error if is_message else f"{type(error).__name__}: {error}")
        try:
            run_folder.mark_failed(folder, overrides, reason)
        except FileNotFoundError:  # the folder is gone
            raise RunError(f"{' '.join(overrides)}: {reason}") from error
        return math.nan


def _shown(override: Override) -> str:
    """Returns an override's text without Hydra's escapes, such as env=my_package:MyEnv-v0."""
    value = override.value()
    return f"{override.get_key_element()}={value}" if isinstance(value, str) else str(override.input_line)


def _in_folder(config: DictConfig, folder: Path) -> float:
    hydra_config = HydraConfig.get()
    values = compose.plain(config)
    auto, trusted = values.pop("resume", None) == compose.AUTO, values.pop("trust", [])
    overrides = [text for text in hydra_config.overrides.task if not text.startswith(("+resume=", "+trust="))]
    added = [source.path for source in hydra_config.runtime.config_sources if source.provider == "command-line"]
    overrides += [compose.searching(added)] if added else []
    name = hydra_config.job.config_name or "train"
    resumes = False
    if auto and list_checkpoints(folder):
        cfg, _ = resume.continuation(folder, overrides, name, trusted)
        if (last_return := _already_finished(cfg, folder, pruned_too=True)) is not None:
            return last_return
        resumes = True
    else:
        cfg = check(values)
    trial = Trial.of_job(hydra_config)
    launcher = hydra_config.launcher.get("_target_")
    if launcher in own_process.POOLS:
        command = [f"--config-name={name}", "resume=auto", *(f"trust={package}" for package in trusted), *overrides]
        command += ["hydra.mode=RUN", f"hydra.run.dir={compose.quoted(str(folder))}"]
        environment = trial.environment() if trial else {}
        return own_process.run_in_pool(command, folder, cfg, launcher, Path(hydra_config.sweep.dir), environment)
    prune = partial(trial.is_worse, folder, cfg) if trial else None
    return train(cfg, folder, prune=prune, summarises=False, resume=resumes)


def train(
    cfg: Settings,
    folder: Path,
    prune: Callable[[int], bool] | None = None,
    resume: bool = False,
    summarises: bool = True,
) -> float:
    """Trains a run to its end, and closes it; returns the mean return of the final evaluation."""
    workspace = Workspace(cfg, folder, resume, prune)
    try:
        last_return = workspace.run()
    finally:
        workspace.close()
    if summarises:
        print("\n".join(workspace.summary()), flush=True)
    return last_return


def continue_run(
    folder: Path,
    overrides: list[str],
    config_name: str = "train",
    trusted: Sequence[str] = (),
) -> float:
    """Continues the run in a folder, unless it is finished; returns the mean return of the final evaluation.

    Args:
        overrides: changes to the configuration `config_name`.
        trusted: packages and paths that the saved configuration may name.

    Raises:
        UserError: if there is nothing to continue, or an override would change what the run means.
    """
    cfg, _ = resume.continuation(folder, overrides, config_name, trusted)
    last_return = _already_finished(cfg, folder)
    return last_return if last_return is not None else train(cfg, folder, resume=True)


def _already_finished(cfg: Settings, folder: Path, pruned_too: bool = False) -> float | None:
    """Returns the final return of a run with nothing left to do, and prints a line; returns None for any other run."""
    finished = run_folder.finished(folder, cfg.num_train_steps, pruned_too)
    if finished is None:
        return None
    ended = "pruned" if pruned_too and run_folder.was_pruned(folder) else "finished"
    print(f"{folder}: {ended} at step {finished[0]}; nothing is left to do", flush=True)
    return finished[1]
