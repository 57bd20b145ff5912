"""Writes evaluation episodes as a Minari data set."""

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.episodes import Recording
from files.writing import new_folder, write_text
from replay import minari_files
from run.saving.run_policy import RunPolicy
from utils import UserError, one_line


def require_new(dataset_id: str) -> Path:
    """Returns the folder of a data set that does not exist yet.

    Raises:
        UserError: if it exists, the id is invalid, or Minari is not installed.
    """
    missing = [name for name in ("minari", "h5py") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"--dataset {dataset_id}: {', '.join(missing)} missing; pip install -e '.[data]'")
    from minari.dataset.minari_dataset import parse_dataset_id  # an optional package

    try:
        parse_dataset_id(dataset_id)
    except Exception:  # a TypeError where the version is missing
        raise UserError(f"--dataset {dataset_id}: an id of Minari's goes here, such as cheetah/expert-v0") from None
    folder = minari_files.root() / dataset_id
    if folder.exists():
        raise UserError(f"--dataset {dataset_id}: {folder} is there already; choose another version, such as -v1")
    return folder


def write(dataset_id: str, recordings: Sequence[Recording], trained: RunPolicy, sampled: bool) -> Path:
    """Writes episodes, with the observations that the policy saw, and actions in the environment's own bounds.

    Returns:
        The folder of the data set.

    Raises:
        UserError: if it cannot be written; then nothing of it is left on the disk.
    """
    from minari import __version__  # an optional package
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage
    from minari.namespace import NAMESPACE_METADATA_FILENAME

    folder = require_new(dataset_id)
    cfg, env = trained.cfg, trained.make_env(False)
    spaces = {"observation_space": env.observation_space, "action_space": env.get_wrapper_attr("own_actions").space}
    env.close()
    kind, agent_name = "Sampled" if sampled else "Greedy", cfg.agent["name"]
    description = f"{kind} episodes of {agent_name} in {cfg.env} after {trained.step} steps of training."
    metadata: dict[str, Any] = {"env": cfg.env, "action_repeat": cfg.action_repeat, "step": trained.step}
    if cfg.obs_groups:  # which reorder an observation's numbers
        metadata["obs_groups"] = str(cfg.obs_groups)
    buffers = [
        EpisodeBuffer(
            seed=recording.seed,
            observations=np.stack(recording.obs),
            actions=np.stack(recording.actions),
            rewards=np.array(recording.rewards),
            terminations=np.array(recording.terminations),
            truncations=np.array(recording.truncations),
        )
        for recording in recordings
    ]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for namespace in folder.parents[: dataset_id.count("/")]:
            if not (namespace / NAMESPACE_METADATA_FILENAME).exists():
                write_text(namespace / NAMESPACE_METADATA_FILENAME, "{}")
        # Minari's own function writes in place, and would leave half a data set behind if it were killed.
        with new_folder(folder) as partial, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Minari warns that no environment is given
            storage = MinariStorage.new(partial / "data", **spaces, data_format="hdf5")
            about = {"dataset_id": dataset_id, "algorithm_name": agent_name, "description": description}
            storage.update_metadata(about | {"minari_version": __version__})
            storage.update_episodes(buffers)
            storage.update_metadata(metadata)
    except OSError as error:
        reason = error.strerror or one_line(error)  # HDF5's own errors have no `strerror`
        raise UserError(f"--dataset {dataset_id}: {folder} cannot be written ({reason})") from None
    return folder
