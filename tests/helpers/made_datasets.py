"""Small Minari data sets with known numbers."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer

FREE = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
TO_ONE = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
LENGTHS = {50: 4, 51: 7, 52: 1, 53: 6}  # of episodes, of which 50 and 53 terminate


def make_episode(number: int, length: int) -> EpisodeBuffer:
    """Observations are the episode's number and its step, as in ProbeNumbered; actions and rewards follow from both."""
    steps = np.arange(length)
    ends, terminates = steps == length - 1, number in (50, 53)
    return EpisodeBuffer(
        observations=np.stack([np.full(length + 1, number), np.arange(length + 1)], axis=1).astype(np.float32),
        actions=((number + steps) % 5 / 5).astype(np.float32)[:, None],
        rewards=100.0 * number + steps,
        terminations=ends & terminates,
        truncations=ends & (not terminates),
    )


EPISODES = [make_episode(number, length) for number, length in LENGTHS.items()]


def make(
    dataset_id: str = "made/known-v0",
    episodes: Sequence[EpisodeBuffer] = EPISODES,
    observation_space: gym.Space = FREE,
    action_space: gym.Space = TO_ONE,
    **about: Any,
) -> Path:
    """Writes a data set below MINARI_DATASETS_PATH; returns the folder of its files."""
    spaces = {"observation_space": observation_space, "action_space": action_space}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = minari.create_dataset_from_buffers(dataset_id, list(episodes), **spaces)
    made.storage.update_metadata(about)
    return Path(made.storage.data_path)
