"""Minari data sets: opened to preload their episodes, and written from recorded evaluation episodes."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari  # an optional package
import numpy as np
from gymnasium.vector.utils import batch_space, iterate
from minari.data_collector import EpisodeBuffer

from replay.episodes import Episode
from utils import UserError


def open_dataset(name: str, action_map: Any) -> tuple[dict[str, Any], int, Iterator[Episode]]:
    """Opens a data set: an id, or the folder that holds its files or `data/` with them.

    Args:
        action_map: the map to the environment's actions (dmc2gym.wrappers.ActionMap), which must have the same bounds.

    Returns:
        What it says of its episodes (`action_repeat`, `obs_groups`), the number of transitions, and the episodes.
    """
    folder = Path(name) / "data" if (Path(name) / "data").is_dir() else Path(name)
    try:
        data = minari.MinariDataset(folder) if folder.is_dir() else minari.load_dataset(name)
    except (OSError, ValueError) as error:
        raise UserError(f"preload={name}: {error}") from None
    about, obs_space, space = data.storage.metadata, data.observation_space, data.action_space
    theirs = type(action_map)(space)
    their_bounds, our_bounds = ((each.low, each.high) for each in (theirs, action_map))
    if theirs.policy_space != action_map.policy_space or not np.allclose(their_bounds, our_bounds):
        raise UserError(f"preload={name}: its actions are {space}, those of the run's environment {action_map.space}")

    def read() -> Iterator[Episode]:
        for episode in data.iterate_episodes():
            steps = iterate(batch_space(obs_space, len(episode) + 1), episode.observations)
            obs = np.array([gym.spaces.flatten(obs_space, step) for step in steps], np.float32)
            rewards, terminated = episode.rewards.astype(np.float64), bool(episode.terminations[-1])
            yield Episode(obs, action_map.inverse(episode.actions), rewards, terminated)

    recorded = {"action_repeat": about.get("action_repeat", 1), "obs_groups": about.get("obs_groups") or None}
    return recorded, int(data.total_steps), read()


class Recorder(gym.Wrapper):
    """Appends each episode of an environment to a list, which several environments may share, as the episode begins.

    Observations are flat, as the policy sees them; actions are in the environment's own shape and bounds.
    """

    def __init__(self, env: gym.Env, episodes: list[EpisodeBuffer]):
        super().__init__(env)
        obs_spec = getattr(env.observation_space, "obs_spec", None)
        if obs_spec is not None and obs_spec.is_mixed:  # packed into one array of bytes
            raise UserError("--dataset: the environment gives images with vectors, which cannot be recorded")
        self._episodes, self._to_env = episodes, env.get_wrapper_attr("action_map").to_env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._episode: Any = EpisodeBuffer(seed=seed, observations=[np.array(obs)], actions=[])
        self._episodes.append(self._episode)
        return obs, info

    def step(self, action: np.ndarray) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        episode = self._episode
        episode.observations.append(np.array(obs))
        episode.actions.append(self._to_env(action))
        episode.rewards.append(float(reward))
        episode.terminations.append(bool(terminated))
        episode.truncations.append(bool(truncated))
        return obs, reward, terminated, truncated, info


def write_dataset(dataset_id: str, episodes: Sequence[EpisodeBuffer], trained: Any, sampled: bool) -> Path:
    """Writes episodes of a RunPolicy, whose actions were `sampled` or greedy; returns the folder of the data set."""
    cfg, env = trained.cfg, trained.make_env(False)
    kind, name = "Sampled" if sampled else "Greedy", cfg.agent["name"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari warns that no environment is given
        data = minari.create_dataset_from_buffers(
            dataset_id,
            list(episodes),
            algorithm_name=name,
            description=f"{kind} episodes of {name} in {cfg.env} after {trained.step} steps of training.",
            observation_space=env.observation_space,
            action_space=env.get_wrapper_attr("action_map").space,
            jpeg_encoding=False,
        )
    env.close()
    about: dict[str, Any] = {"env": cfg.env, "action_repeat": cfg.action_repeat, "step": trained.step}
    if cfg.obs_groups:  # which reorder an observation's numbers
        about["obs_groups"] = str(cfg.obs_groups)
    data.storage.update_metadata(about)
    return Path(data.storage.data_path).parent
