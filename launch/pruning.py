"""Stops the worse trials of a study early. A trial is compared with the evaluations of others at the same step.

The process of a run decides, after each row of its eval.csv. It compares the run's evaluations with those of the trials
in study.db, which is not written to while a batch of trials runs. So the decision depends on numbers only, not on time,
and a resumed run decides the same.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from files.reading import read_csv
from launch.launchers import TUNING
from settings.schema import Settings
from utils import RunError, one_line

_VARIABLE = "TUNING_TRIAL"  # how a pool tells the process of a run which trial it is


@dataclass(frozen=True)
class Trial:
    """A trial that may be pruned: the folder of its study, its number there, and the configuration of the pruner."""

    sweep: str
    number: int
    pruner: dict[str, Any]

    @classmethod
    def of_job(cls, hydra_config: Any) -> "Trial | None":
        """Returns the trial of a sweep's job, from Hydra's node of its configuration; None if there is no pruner."""
        pruner = hydra_config.sweeper.get("pruner")
        if hydra_config.sweeper.get("_target_") != TUNING or pruner is None:
            return None
        return cls(hydra_config.sweep.dir, hydra_config.job.num, OmegaConf.to_container(pruner, resolve=True))  # type: ignore[arg-type]

    @classmethod
    def of_process(cls) -> "Trial | None":
        """Returns the trial that a pool started this process for; None if there is no pruner."""
        text = os.environ.get(_VARIABLE)
        return cls(**json.loads(text)) if text else None

    def environment(self) -> dict[str, str]:
        """Returns the environment variables that pass the trial to the run's process."""
        return {_VARIABLE: json.dumps(asdict(self))}

    def is_worse(self, run: Path, cfg: Settings, step: int) -> bool:
        """Returns whether the pruner stops the trial after its newest evaluation, which was made at `step`."""
        if step >= cfg.num_train_steps:  # nothing is left to stop
            return False
        import optuna  # not before: it is optional

        from launch import database

        # A copy in memory, because some pruners write into their study and this process must not.
        with database.opened(Path(self.sweep)) as storage:
            stored = optuna.load_study(study_name=database.NAME, storage=storage)
            study = optuna.create_study(
                study_name=database.NAME,
                direction=stored.direction,
                pruner=instantiate(self.pruner),
                sampler=optuna.samplers.RandomSampler(),
            )
            study.add_trials(stored.trials[: self.number])
        trial, worse = study.ask(), False
        for due, mean_return in evaluations(run, cfg.eval_frequency).items():
            trial.report(mean_return, due)
            worse = trial.should_prune()
        return worse


def evaluations(run: Path, eval_frequency: int) -> dict[int, float]:
    """Returns the mean returns in a run's eval.csv, by the step at which each evaluation was due.

    An evaluation runs up to one loop iteration later, as an action may be held for several environment steps.
    """
    path = run / "eval.csv"
    returns: dict[int, float] = {}
    try:
        for row in read_csv(path) if path.exists() else []:
            step = int(row["step"])
            returns.setdefault(step - step % max(eval_frequency, 1), float(row["episode_reward"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: not a log of a run ({one_line(error)[:80]})") from None
    return returns
