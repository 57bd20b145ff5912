"""Played episodes, written as a data set of Minari's."""

import importlib.util
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.episodes import Recording
from replay import minari_files
from run.saving.run_policy import RunPolicy
from utils import UserError, one_line


def require_new(dataset_id: str) -> Path:
    """The folder of a data set that is not there yet.

    Raises:
        UserError: for what is no id, or is taken, or where Minari is missing.
    """
    missing = [name for name in ("minari", "h5py") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"--dataset {dataset_id}: {', '.join(missing)} missing; pip install -e '.[data]'")
    from minari.dataset.minari_dataset import parse_dataset_id  # not before: it is optional

    try:
        parse_dataset_id(dataset_id)
    except Exception:  # a TypeError where the version is missing
        raise UserError(f"--dataset {dataset_id}: an id of Minari's goes here, such as cheetah/expert-v0") from None
    folder = minari_files.root() / dataset_id
    if folder.exists():
        raise UserError(f"--dataset {dataset_id}: {folder} is there already; choose another version, such as -v1")
    return folder


def write(dataset_id: str, recordings: Sequence[Recording], played: RunPolicy, sampled: bool) -> Path:
    """Writes episodes, with observations as the policy saw them and actions in the environment's own bounds.

    Args:
        sampled: whether the actions were; otherwise they are greedy.

    Returns:
        The folder of the data set.

    Raises:
        UserError: where it cannot be written; nothing is left of it then.
    """
    import minari  # not before: it is optional
    from minari.data_collector import EpisodeBuffer

    folder = require_new(dataset_id)
    env = played.make_env(False)
    own = env.get_wrapper_attr("own_actions")
    spaces = {"observation_space": env.observation_space, "action_space": own.space}
    env.close()
    cfg = played.cfg
    about: dict[str, Any] = {"env": cfg.env, "action_repeat": cfg.action_repeat, "step": played.step}
    how = "Sampled" if sampled else "Greedy"
    said = f"{how} episodes of {cfg.agent['name']} in {cfg.env} after {played.step} steps of training."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of authors and links that it has no names of
            buffers = [
                EpisodeBuffer(
                    seed=one.seed,
                    observations=np.stack(one.obs),
                    actions=np.stack(one.actions),
                    rewards=np.array(one.rewards),
                    terminations=np.array(one.terminations),
                    truncations=np.array(one.truncations),
                )
                for one in recordings
            ]
            made = minari.create_dataset_from_buffers(
                dataset_id, buffers, **spaces, algorithm_name=cfg.agent["name"], description=said, data_format="hdf5"
            )
            made.storage.update_metadata(about)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise UserError(f"--dataset {dataset_id}: {folder} cannot be written ({one_line(error)})") from None
        raise
    return folder
