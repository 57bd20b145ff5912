"""Pruning: a trial of a study is stopped early if its evaluations are worse than those of others at the same step.

The run decides by itself after each row of its eval.csv, in whatever process it is. It compares the row with the trials
that the study.db in the sweep's folder has as finished, to which nothing is added while a batch of trials runs. So
the decision depends on numbers alone, not on time, and a run that is resumed decides the same.
"""

import csv
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import OmegaConf

from launch.engines import TUNING
from settings.check import Settings

_VARIABLE = "PRUNED_TRIAL"  # set by a pool to the trial that a run of its own process is


@dataclass(frozen=True)
class Trial:
    """A trial that may be pruned.

    Attributes:
        sweep: folder of the study.
        number: of the trial in it.
        pruner: configuration of one of Optuna's.
    """

    sweep: str
    number: int
    pruner: dict[str, Any]

    @classmethod
    def of_job(cls, hydra_config: Any) -> "Trial | None":
        """The trial that a job of this configuration (Hydra's node) is; None if it is none, or may not be pruned."""
        if hydra_config.mode != RunMode.MULTIRUN:
            text = os.environ.get(_VARIABLE)
            return cls(**json.loads(text)) if text else None
        pruner = hydra_config.sweeper.get("pruner")
        if hydra_config.sweeper.get("_target_") != TUNING or pruner is None:
            return None
        return cls(hydra_config.sweep.dir, hydra_config.job.num, OmegaConf.to_container(pruner, resolve=True))  # type: ignore[arg-type]

    def environment(self) -> dict[str, str]:
        """Variables by which a process of its own knows the trial."""
        return {_VARIABLE: json.dumps(asdict(self))}

    def is_worse(self, run: Path, cfg: Settings, step: int) -> bool:
        """Whether the pruner stops the trial, which is this run, after its newest evaluation, made at this step."""
        if step >= cfg.num_train_steps:  # nothing is left to stop
            return False
        import optuna  # not before: it is optional

        from launch import database

        # A copy in memory: a pruner may write into its study, and this process only reads the one on disk.
        with database.opened(Path(self.sweep)) as storage:
            begun = optuna.load_study(study_name=database.NAME, storage=storage)
            study = optuna.create_study(
                study_name=database.NAME,
                direction=begun.direction,
                pruner=instantiate(self.pruner),
                sampler=optuna.samplers.RandomSampler(),
            )
            study.add_trials(begun.trials[: self.number])
        trial, worse = study.ask(), False
        for due, mean_return in evaluations(run, cfg.eval_frequency).items():
            trial.report(mean_return, due)
            worse = trial.should_prune()
        return worse


def evaluations(run: Path, eval_frequency: int) -> dict[int, float]:
    """The mean returns in a run's eval.csv by the step at which each was due, which is the same in all trials.

    An evaluation is made at the end of the loop's step, which may hold an action for several environment steps.
    """
    path = run / "eval.csv"
    found: dict[int, float] = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                step = int(row["step"])
                found.setdefault(step - step % max(eval_frequency, 1), float(row["episode_reward"]))
    return found
