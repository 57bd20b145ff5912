"""Small Minari data sets with known numbers."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer

FREE = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
TO_ONE = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)


def episode(number: int, length: int, terminated: bool = False) -> EpisodeBuffer:
    """Observations are the episode's number and its step, as in ProbeNumbered; actions and rewards follow from both."""
    steps = np.arange(length)
    ends = steps == length - 1
    return EpisodeBuffer(
        observations=np.stack([np.full(length + 1, number), np.arange(length + 1)], axis=1).astype(np.float32),
        actions=((number + steps) % 5 / 5).astype(np.float32)[:, None],
        rewards=100.0 * number + steps,
        terminations=ends & terminated,
        truncations=ends & (not terminated),
    )


EPISODES = (episode(50, 4, terminated=True), episode(51, 7), episode(52, 1), episode(53, 6, terminated=True))
LENGTHS = {50: 4, 51: 7, 52: 1, 53: 6}


def make(
    dataset_id: str = "made/known-v0",
    episodes: Sequence[EpisodeBuffer] = EPISODES,
    observation_space: gym.Space = FREE,
    action_space: gym.Space = TO_ONE,
    **about: Any,
) -> Path:
    """Writes a data set with Minari's own package, below MINARI_DATASETS_PATH; returns the folder of its files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = minari.create_dataset_from_buffers(
            dataset_id, list(episodes), observation_space=observation_space, action_space=action_space
        )
    made.storage.update_metadata(about)
    return Path(made.storage.data_path)


def change_metadata(folder: Path, **values: Any) -> None:
    path = folder / "metadata.json"
    about = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in about.items() if value is not ...}))


def replace(folder: Path, name: str, new: Any) -> None:
    """Replaces an array of the first episode by another array, or by a link."""
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file[f"episode_0/{name}"]
        file[f"episode_0/{name}"] = new
