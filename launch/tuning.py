"""Tuning with Optuna. A study is a sweep whose values a sampler chooses; it can be stopped at any time and
continued."""

from pathlib import Path
from typing import Any

import numpy as np
import optuna
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import TrialState

from files.writing import write_text
from launch import database, pruning
from launch.sampling import search_space
from run.saving import folder as run_folder
from settings import compose
from settings import plain_yaml as saved_yaml
from settings.keys import dotted
from utils import RunError, UserError, one_line

WHAT_IT_IS = "tuning.yaml"  # in the sweep's folder: the searched ranges, and the settings that all trials share
HEAD = "# The same for all trials; of what is searched, and of what follows it, the first value.\n"


def require(config: DictConfig, overrides: list[Override]) -> None:
    """Raises UserError for a mistake in `hydra.sweeper`, or in a range of the overrides."""
    sweeper = config.hydra.sweeper
    for key in ("n_trials", "n_jobs"):
        if type(sweeper[key]) is not int:
            raise UserError(f"hydra.sweeper.{key}={sweeper[key]}: a whole number goes here")
        if sweeper[key] < 1:
            raise UserError(f"hydra.sweeper.{key}={sweeper[key]}: at least 1 is needed")
    if sweeper.direction not in ("maximize", "minimize"):
        raise UserError(f"hydra.sweeper.direction={sweeper.direction}: maximize or minimize goes here")
    _sampler(sweeper), _pruner(sweeper)
    if sweeper.pruner is not None and OmegaConf.select(config, "logger.sinks.csv") is None:
        raise UserError("hydra.sweeper.pruner: it reads eval.csv, so logger.sinks.csv has to be left on")
    if not search_space(overrides):
        raise UserError("hydra/sweeper=tuning: nothing to search; give a key a range, such as agent.batch_size=64,128")


def _part(sweeper: DictConfig, name: str, kind: type, example: str) -> Any:
    """Builds the sampler or the pruner; raises UserError if the result is not a `kind`."""
    try:
        part = instantiate(sweeper[name]) if isinstance(sweeper[name], DictConfig) else None
    except Exception as error:  # the class can raise anything about its arguments
        raise UserError(f"hydra.sweeper.{name}: {one_line(error.__cause__ or error)}") from None
    if not isinstance(part, kind):
        raise UserError(f"hydra.sweeper.{name}={sweeper[name]}: one of Optuna's {name}s goes here, {example}")
    return part


def _sampler(sweeper: DictConfig) -> BaseSampler:
    return _part(sweeper, "sampler", BaseSampler, "such as {_target_: optuna.samplers.TPESampler}")


def _pruner(sweeper: DictConfig) -> BasePruner:
    if sweeper.pruner is None:
        return NopPruner()  # for None, Optuna would take a pruner of its own choice
    return _part(sweeper, "pruner", BasePruner, "such as hydra/sweeper/pruner=median")


def open_study(
    folder: Path, direction: str, searched: dict[str, str], settings: dict[str, Any], may_continue: bool
) -> None:
    """Prepares a sweep's folder for a new or a continued study.

    Holds the folder's lock until the process ends.

    Args:
        searched: the searched ranges, by key, as Hydra reads them.
        settings: the settings of one run, resolved.
        may_continue: whether an existing study may be continued (`resume=auto`).

    Raises:
        UserError: if an existing study may not be continued, differs in its settings, or is used by another process.
    """
    run_folder.Lock(folder)
    asked = {"direction": direction, "searched": searched, "settings": settings}
    path = folder / WHAT_IT_IS
    if not path.exists():
        write_text(path, HEAD + OmegaConf.to_yaml(OmegaConf.create(asked)))
        return
    if not may_continue:
        raise UserError(f"hydra.sweep.dir={folder}: a study is there already; add resume=auto to go on with it")
    _require_same(path, asked)
    database.require_readable(folder)


def _require_same(path: Path, asked: dict[str, Any]) -> None:
    """Raises UserError if the study in the folder has other settings, as its trials could not be compared."""
    saved = saved_yaml.load(path)
    if not isinstance(saved, dict):
        raise UserError(f"{path}: not what a study writes")
    begun, now = (dotted(what) for what in (saved, OmegaConf.to_container(OmegaConf.create(asked))))  # type: ignore[arg-type]
    for key in [*begun, *now]:
        if begun.get(key, ...) != now.get(key, ...):
            part, _, name = key.partition(".")
            name = name or f"hydra.sweeper.{part}"
            was, wanted = (f"{name}={values[key]}" if key in values else f"no {name}" for values in (begun, now))
            verb = "searches" if part == "searched" else "has"
            raise UserError(
                f"hydra.sweep.dir={path.parent}: the study there {verb} {was}, and {wanted} is asked for; "
                "its trials could not be compared: choose another folder"
            )


def sweep(launcher: Launcher, config: DictConfig, arguments: list[str]) -> None:
    """Runs the trials that a study lacks, interrupted ones first, and reports the best.

    The folder of a trial is named by its values, so an interrupted run continues from its checkpoint.

    Raises:
        RunError: if no trial was completed.
    """
    sweeper, folder = config.hydra.sweeper, Path(config.hydra.sweep.dir)
    n_trials, n_jobs = sweeper.n_trials, sweeper.n_jobs
    overrides = compose.parse(compose.with_params(sweeper.params, arguments))
    space = search_space(overrides)
    with database.opened(folder) as storage:
        study = optuna.create_study(
            storage=storage,
            study_name=database.NAME,
            direction=sweeper.direction,
            sampler=_sampler(sweeper),
            pruner=_pruner(sweeper),
            load_if_exists=True,
        )
        study_id = storage.get_study_id_from_name(study.study_name)
        for cut_off in study.get_trials(states=[TrialState.RUNNING]):  # interrupted trials are queued again
            trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, cut_off.number)
            storage.set_trial_state_values(trial_id, TrialState.WAITING)
        while (done := sum(trial.state.is_finished() for trial in study.trials)) < n_trials:
            # Batches end at multiples of n_jobs, so a study that is killed within a batch continues with the same ones.
            trials = [study.ask(space) for _ in range(min(n_jobs - done % n_jobs, n_trials - done))]
            batch = [[_override(override, trial.params) for override in overrides] for trial in trials]
            distinct = list(dict.fromkeys(map(tuple, batch)))  # equal trials are one run, in one folder
            jobs = dict(zip(distinct, launcher.launch(distinct, initial_job_idx=trials[0].number), strict=True))
            for trial, values in zip(trials, batch, strict=True):
                _tell(study, trial, jobs[tuple(values)])
        _conclude(study, folder)


def _override(override: Override, values: dict[str, Any]) -> str:
    """Returns an override of the command line, with the trial's value if its key is searched."""
    key = override.get_key_element()
    return f"{key}={values[key]}" if override.is_sweep_override() else str(override.input_line)


def _tell(study: Study, trial: optuna.Trial, job: JobReturn) -> None:
    """Writes the result of a trial and its evaluations into the study, and prints the result."""
    assert job.hydra_cfg is not None and job.cfg is not None
    last_return = float(job.return_value)  # raises the job's exception, if it had one
    run = Path(job.hydra_cfg.hydra.runtime.output_dir)
    reported = study.trials[trial.number].intermediate_values  # perhaps of an earlier start, killed in this function
    for step, mean_return in pruning.evaluations(run, job.cfg.eval_frequency).items():
        if step not in reported:
            trial.report(mean_return, step)
        trial.should_prune()  # some pruners store what they compare later trials with
    if np.isnan(last_return):
        study.tell(trial, state=TrialState.FAIL)
        outcome = f"failed: {run_folder.failure(run) or 'its return is not a number'}"
    elif (finished := run_folder.finished(run)) and run_folder.was_pruned(run):
        study.tell(trial, state=TrialState.PRUNED)
        outcome = f"pruned at step {finished[0]}, return {last_return:.1f}"
    else:
        study.tell(trial, last_return)
        outcome = f"return {last_return:.1f}"
    print(f"Trial {trial.number}: {outcome}", flush=True)


def _conclude(study: Study, folder: Path) -> None:
    if not study.get_trials(states=[TrialState.COMPLETE]):
        pruned = " or was pruned" if study.get_trials(states=[TrialState.PRUNED]) else ""
        raise RunError(f"every trial failed{pruned}; the lines above say why")
    best = study.best_trial
    result = {"name": "optuna", "best_params": best.params, "best_value": best.value}
    write_text(folder / "optimization_results.yaml", OmegaConf.to_yaml(OmegaConf.create(result)))
    print(f"Best parameters: {best.params}\nBest value: {best.value}", flush=True)
