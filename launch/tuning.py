"""Tuning with Optuna. A study is a sweep whose values a sampler chooses; a stopped one goes on with `resume=auto`.

study.log in the sweep's folder is the study; a trial's folder is named by its number. The sweeper asks for trials and
tells their results; the process of a run reports its evaluations, and may prune it.
"""

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep, Transformer
from hydra.plugins.launcher import Launcher
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import NopPruner
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from launch.checks import parse_sweep
from utils import RunError, UserError, lock, write_atomic

NAME = "tuning"  # of the study in its file
FILE = "study.log"

optuna.logging.set_verbosity(optuna.logging.WARNING)  # the sweep prints trials itself


def sweep(launcher: Launcher, config: DictConfig) -> None:
    """Runs the trials that a study lacks, interrupted ones first, and prints the best.

    Raises:
        RunError: if no trial was completed.
    """
    sweeper, folder = config.hydra.sweeper, Path(config.hydra.sweep.dir)
    overrides = parse_sweep(config)
    space = {str(one.get_key_element()): _make_distribution(one) for one in overrides if one.is_sweep_override()}
    if not space:
        raise UserError("hydra/sweeper=tuning: nothing to search; give a key a range: agent.batch_size=64,128")
    folder.mkdir(parents=True, exist_ok=True)
    lock(folder / ".lock")
    study = _open_study(folder, sweeper)
    while True:
        trials = study.get_trials(states=[TrialState.RUNNING])  # those that were interrupted
        for _ in range(0 if trials else min(sweeper.n_jobs, sweeper.n_trials - len(study.trials))):
            # With a seed for each trial, a study that was stopped draws what it would have drawn.
            seed = 100_000 * sweeper.sampler.seed + len(study.trials)
            study.sampler = instantiate(sweeper.sampler, seed=seed)
            number = study.ask(space).number
            trials.append(study.trials[number])
        if not trials:
            break
        batch = [
            [*(_substitute(one, trial.params) for one in overrides), f"hydra.sweep.subdir=trial_{trial.number}"]
            for trial in trials
        ]
        for trial, job in zip(trials, launcher.launch(batch, initial_job_idx=trials[0].number), strict=True):
            _tell(study, trial, float(job.return_value), folder / f"trial_{trial.number}")
    if not study.get_trials(states=[TrialState.COMPLETE]):
        raise RunError("no trial was completed; the lines above say why")
    best = {"name": "optuna", "best_params": study.best_params, "best_value": study.best_value}
    write_atomic(folder / "optimization_results.yaml", OmegaConf.to_yaml(OmegaConf.create(best)))
    print(f"Best parameters: {study.best_params}\nBest value: {study.best_value}", flush=True)


def make_prune(hydra_config: Any) -> Callable[[int], bool]:
    """Returns a function from the step of a trial's newest evaluation to whether the pruner stops the trial."""
    folder, number = Path(hydra_config.sweep.dir), hydra_config.job.num
    run = Path(hydra_config.runtime.output_dir)

    def prune(step: int) -> bool:
        study = _open_study(folder, hydra_config.sweeper)
        trial = Trial(study, study.trials[number]._trial_id)
        with (run / "eval.csv").open(newline="", encoding="utf-8") as file:
            returns = {int(row["step"]): float(row["episode_reward"]) for row in csv.DictReader(file)}
        for evaluated in returns.keys() - study.trials[number].intermediate_values.keys():
            trial.report(returns[evaluated], evaluated)
        return trial.should_prune()

    return prune


def _open_study(folder: Path, sweeper: DictConfig) -> Study:
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(folder / FILE))),
        study_name=NAME,
        direction=sweeper.direction,
        pruner=NopPruner() if sweeper.pruner is None else instantiate(sweeper.pruner),
        load_if_exists=True,
    )


def _substitute(override: Override, values: dict[str, Any]) -> str:
    """Returns an override of the command line, with the trial's value if its key is searched."""
    key = str(override.get_key_element())
    return f"{key}={values[key]}" if override.is_sweep_override() else str(override.input_line)


def _tell(study: Study, trial: FrozenTrial, last_return: float, run: Path) -> None:
    """Writes the result of a trial into the study, and prints it."""
    finished = run / "finished.json"
    if np.isnan(last_return):
        study.tell(trial.number, state=TrialState.FAIL)
    elif '"pruned": true' in finished.read_text(encoding="utf-8"):
        study.tell(trial.number, state=TrialState.PRUNED)
    else:
        study.tell(trial.number, last_return)
    print(
        f"Trial {trial.number}: {study.trials[trial.number].state.name.lower()}, return {last_return:.1f}", flush=True
    )


def _make_distribution(override: Override) -> BaseDistribution:
    value = override.value()
    if isinstance(value, IntervalSweep):
        assert value.start is not None and value.end is not None
        return _make_numbers(value.start, value.end, log="log" in value.tags)
    if isinstance(value, RangeSweep):
        in_order = sorted(value.range())
        return _make_numbers(in_order[0], round(in_order[-1], 12), step=abs(value.step))  # 0.1 + 0.1 + 0.1 > 0.3
    choices: Iterable[Any] = override.sweep_iterator(_make_choice)
    return CategoricalDistribution([*choices])


def _make_numbers(low: float, high: float, **options: Any) -> BaseDistribution:
    whole = isinstance(low, int) and isinstance(high, int)
    return IntDistribution(int(low), int(high), **options) if whole else FloatDistribution(low, high, **options)


def _make_choice(value: Any) -> bool | int | float | str:
    """Returns a number or bool unchanged, and anything else as the text of an override, with quotes and escapes."""
    return value if isinstance(value, bool | int | float) else Transformer.str(value)
