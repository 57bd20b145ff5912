"""Seeded episodes, numbers of their `info`, and the environments of a training."""

import atexit
import multiprocessing
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from settings.operating_system import begin_helper

# Independent streams of seeds: training episodes, evaluation episodes, and the noise of sampled evaluation actions.
TRAIN_STREAM, EVAL_STREAM = 0, 1

DEFAULT_INFO_KEYS: Mapping[str, str] = {"is_success": "last"}  # the default of the key `info_keys`
EPISODE_INFO = "episode_info"  # key of the last step's info: EpisodeInfo's values, as (key, value) pairs
TAKEN = "taken"  # key of a vector environment's info: which environments took the step; without it, all did


class EpisodeInfo(gym.Wrapper):
    """Collects numbers of an environment's `info` over each episode.

    The last step's `info[EPISODE_INFO]` has a pair (key, value) for each key with a value. The pairs are not a
    dictionary, because a vector environment would merge the dictionaries of its environments.

    Args:
        info_keys: by key of `info`: `last`, the value of the last step, or `sum`, the sum over all steps. Values that
            are not numbers are ignored.
    """

    def __init__(self, env: gym.Env, info_keys: Mapping[str, str]):
        super().__init__(env)
        self._info_keys = dict(info_keys)
        self._summed = [key for key, how in info_keys.items() if how == "sum"]
        self._sums: dict[str, float] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._sums = {}
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        for key in self._summed:
            if (value := to_number(info.get(key))) is not None:
                self._sums[key] = self._sums.get(key, 0.0) + value
        if terminated or truncated:
            values = {key: to_number(info.get(key)) for key in self._info_keys}
            values |= {key: self._sums.get(key) for key in self._summed}
            info = {**info, EPISODE_INFO: tuple((k, value) for k, value in values.items() if value is not None)}
        return obs, reward, terminated, truncated, info


def to_number(value: Any) -> float | None:
    """Converts a number, a bool, or an array of one of them to a float; returns None for anything else."""
    if isinstance(value, np.ndarray | np.generic) and value.size == 1 and value.dtype.kind in "biuf":
        value = value.item()
    return float(value) if isinstance(value, bool | int | float) else None


def episode_seed(run_seed: int, stream: int, *counters: int) -> int:
    """Computes the seed, in [0, 2**32), of one episode, or of the actions of one evaluation, which `counters` identify
    in its stream, such as (environment index, episode number)."""
    return int(np.random.SeedSequence([run_seed, stream, *counters]).generate_state(1)[0])


def first_cut(run_seed: int, index: int, first_steps: int) -> int:
    """Draws the step, 1 to `first_steps`, that cuts an environment's first episode; 0 (never) if that is 0."""
    return int(np.random.default_rng([run_seed, index]).integers(1, first_steps + 1)) if first_steps else 0


class SeededEpisodes(gym.Wrapper):
    """Makes every training episode a function of (run seed, index, episode number) and its actions.

    The state of the environment is therefore the episode number and the actions since its start. `load_state_dict`
    resets with that episode's seed and repeats the actions, which is exact for any deterministic environment. The first
    episode is cut at a random number of steps up to `first_steps`; 0 does not cut it.
    """

    def __init__(self, env: gym.Env, run_seed: int, index: int = 0, first_steps: int = 0):
        super().__init__(env)
        self._run_seed, self._index = run_seed, index
        self._cut_after = first_cut(run_seed, index, first_steps)
        self._episode = 0
        self._actions: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts the next episode and ignores `seed`.

        Given `options={"states": states}` of all environments of a run, it restores its own state instead.
        """
        if options and "states" in options:
            return self.load_state_dict(options["states"][self._index]), {}
        return self._begin(self._episode + 1), {}

    def _begin(self, episode: int) -> Any:
        self._episode = episode
        self._actions = []
        obs, _ = self.env.reset(seed=episode_seed(self._run_seed, TRAIN_STREAM, self._index, episode))
        return obs

    def step(self, action: np.ndarray) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._actions.append(np.array(action))
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self._episode == 1 and 0 < self._cut_after <= len(self._actions) * info["repeats"]:
            truncated = not terminated
        kept = {"repeats": info["repeats"]}  # training reads nothing else
        if terminated or truncated:
            kept[EPISODE_INFO] = info.get(EPISODE_INFO, ())
        return obs, reward, terminated, truncated, kept

    def state_dict(self) -> dict[str, Any]:
        return {"episode": self._episode, "actions": [action.tolist() for action in self._actions]}

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Restores an episode and returns its newest observation."""
        obs = self._begin(state["episode"])
        for action in state["actions"]:
            obs, *_ = self.step(np.asarray(action, np.float32))
        return obs


def make_vector_env(
    make_one: Callable[[], gym.Env],
    run_seed: int,
    num_envs: int = 1,
    asynchronous: bool = False,
    first_steps: int = 0,
) -> SyncVectorEnv | AsyncVectorEnv:
    """Makes the training environments, each a SeededEpisodes, as one vector environment.

    They do not reset automatically: `reset(options={"reset_mask": done})` starts the next episodes of environments that
    are done. `call("state_dict")` returns their states; `reset(options={"reset_mask": all, "states": states})` restores
    them. If `asynchronous`, each runs in its own process.
    """
    makers = [partial(_make_seeded, make_one, os.getpid(), run_seed, index, first_steps) for index in range(num_envs)]
    if not asynchronous:
        return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)
    multiprocessing.set_forkserver_preload(["__main__", "envs.make"])
    envs = AsyncVectorEnv(makers, context="forkserver", autoreset_mode=AutoresetMode.DISABLED)
    for process in envs.processes:  # at exit, multiprocessing would wait for them, and they ignore SIGTERM
        atexit.register(process.kill)
    return envs


def _make_seeded(make_one: Callable[[], gym.Env], run_process: int, *seed: int) -> gym.Env:
    if os.getpid() != run_process:  # AsyncVectorEnv makes one in the run's process too, to look at its spaces
        begin_helper()
    return SeededEpisodes(make_one(), *seed)
