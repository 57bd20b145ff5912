"""Writes evaluation episodes as a Minari data set."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.episodes import Recording


def write_dataset(dataset_id: str, recordings: Sequence[Recording], trained: Any, sampled: bool) -> Path:
    """Writes episodes, with the observations that the policy saw, and actions in the environment's own bounds.

    Args:
        dataset_id: an id of Minari's that is not there yet, such as cheetah/expert-v0.
        trained: a RunPolicy.
        sampled: whether its actions were sampled.

    Returns:
        The folder of the data set.
    """
    import minari  # an optional package

    cfg, env = trained.cfg, trained.make_env(False)
    columns = "actions", "rewards", "terminations", "truncations"
    episodes = [
        minari.data_collector.EpisodeBuffer(
            seed=each.seed, observations=np.stack(each.obs), **{name: np.array(getattr(each, name)) for name in columns}
        )
        for each in recordings
    ]
    kind, name = "Sampled" if sampled else "Greedy", cfg.agent["name"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari warns that no environment is given
        data = minari.create_dataset_from_buffers(
            dataset_id,
            episodes,
            algorithm_name=name,
            description=f"{kind} episodes of {name} in {cfg.env} after {trained.step} steps of training.",
            observation_space=env.observation_space,
            action_space=env.get_wrapper_attr("own_actions").space,
            jpeg_encoding=False,
        )
    env.close()
    about: dict[str, Any] = {"env": cfg.env, "action_repeat": cfg.action_repeat, "step": trained.step}
    if cfg.obs_groups:  # which reorder an observation's numbers
        about["obs_groups"] = str(cfg.obs_groups)
    data.storage.update_metadata(about)
    return Path(data.storage.data_path).parent
