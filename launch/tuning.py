"""Tuning with Optuna, through Hydra's plugin: a study that may be stopped at any time, and goes on the same."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from omegaconf import DictConfig, OmegaConf
from optuna.distributions import BaseDistribution
from optuna.exceptions import OptunaError
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from run import folder as run_folder
from settings import saved as saved_yaml
from settings.nested import dotted
from utils import UserError, write_atomically

WHAT_IT_IS = "tuning.yaml"  # in the sweep's folder: what is searched, and everything that is the same for all trials
HEAD = "# The same for all trials; of what is searched, and of what follows it, the first value.\n"


class SeededTPE(TPESampler):
    """Optuna's TPE (Bergstra et al., 2011), with a generator of its own for each value that it draws.

    One that runs on through a study would begin again with the process: a study that was stopped would then draw the
    values of its first trials a second time.

    Args:
        seed: of the study.
        options: TPESampler's.
    """

    def __init__(self, seed: int, **options: Any):
        super().__init__(seed=seed, **options)
        self._seed = seed

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """One value of one trial."""
        entropy = np.random.SeedSequence([self._seed, trial.number, zlib.crc32(param_name.encode())])
        self._rng = self._random_sampler._rng = np.random.RandomState(entropy.generate_state(4))
        return super().sample_independent(study, trial, param_name, param_distribution)


def require(sweeper: DictConfig, searched: dict[str, str]) -> None:
    """Raises UserError for what Optuna, or its plugin, would stumble over in `hydra.sweeper`."""
    for key in ("n_trials", "n_jobs"):
        if sweeper[key] < 1:
            raise UserError(f"hydra.sweeper.{key}={sweeper[key]}: at least 1 is needed")
    if sweeper.direction not in ("maximize", "minimize"):
        raise UserError(f"hydra.sweeper.direction={sweeper.direction}: maximize or minimize goes here")
    if not searched:
        raise UserError("hydra/sweeper=tuning: nothing to search; give a key a range, such as agent.batch_size=64,128")


def open_study(
    folder: Path, sweeper: DictConfig, searched: dict[str, str], settings: dict[str, Any], may_continue: bool
) -> int:
    """Makes a sweep's folder ready for Hydra's plugin, which begins a study there or goes on with it.

    The folder is this process's until it ends. Trials that were cut off are put back to be taken first: as a trial's
    folder is named by its values, their runs go on from their checkpoints.

    Args:
        folder: the sweep's.
        sweeper: `hydra.sweeper`.
        searched: what is searched, by key, as Hydra reads it.
        settings: those of one run, resolved.
        may_continue: whether a study that is there may go on (`resume=auto`).

    Returns:
        The number of trials that are left to do.

    Raises:
        UserError: if the study that is there may not go on, or not like this, or another process is at work on it.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # Hydra's plugin says the same
    run_folder.Lock(folder)
    asked = {"direction": sweeper.direction, "searched": searched, "settings": settings}
    path = folder / WHAT_IT_IS
    if not path.exists():
        write_atomically(path, HEAD + OmegaConf.to_yaml(OmegaConf.create(asked)))
        return int(sweeper.n_trials)
    if not may_continue:
        raise UserError(f"hydra.sweep.dir={folder}: a study is there already; add resume=auto to go on with it")
    _require_same(path, asked)
    return max(int(sweeper.n_trials) - _put_back(sweeper), 0)


def _require_same(path: Path, asked: dict[str, Any]) -> None:
    """Trials of one study are compared, so they have everything in common but what is searched."""
    try:
        saved = saved_yaml.load(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({type(error).__name__})") from None
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


def _put_back(sweeper: DictConfig) -> int:
    """Puts a study's unfinished trials back into its queue; returns how many are finished."""
    if sweeper.storage is None:
        return 0
    try:
        storage = RDBStorage(sweeper.storage)
        try:
            trials = storage.get_all_trials(storage.get_study_id_from_name(sweeper.study_name))
        except KeyError:  # killed before its first
            trials = []
        for trial in trials:
            if trial.state == TrialState.RUNNING:
                storage.set_trial_state(trial._trial_id, TrialState.WAITING)
        storage.remove_session()
        storage.engine.dispose()
    except (SQLAlchemyError, OptunaError, AssertionError) as error:
        raise UserError(f"{sweeper.storage}: the study cannot be read ({type(error).__name__})") from None
    return sum(trial.state.is_finished() for trial in trials)
