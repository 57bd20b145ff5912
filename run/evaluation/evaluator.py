"""Runs evaluation episodes in environments of their own. These are stepped together with batched actions."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from envs.episodes import EPISODE_INFO, EVAL_STREAM, episode_seed
from settings.types import PositiveInt
from utils import eval_mode
from video import filming, seconds_per_step

MakeEnv = Any  # Callable[[bool], gym.Env], given whether it will be rendered; may have `make_batch` or `worlds`


@dataclass
class Evaluation:
    """The result of an evaluation: of each episode the undiscounted return and the environment steps."""

    returns: list[float]
    lengths: list[int]
    infos: dict[str, list[float]] = field(default_factory=dict)  # by key of `info_keys`, of the episodes that have one


@contextmanager
def evaluating(agent: Any) -> Iterator[None]:
    """Within its block, an agent acts in evaluation mode, on one thread, as another number of threads rounds matmuls
    differently."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with eval_mode(agent):
            yield
    finally:
        torch.set_num_threads(num_threads)


class SerialEnvs:
    """Steps single environments one by one, with the methods of physics.worlds.Worlds."""

    def __init__(self, envs: list[gym.Env]):
        self._envs, self.count, self.render = envs, len(envs), envs[0].render
        self.unwrapped, self.metadata = envs[0].unwrapped, envs[0].metadata

    def reset(self, index: int, seed: int) -> np.ndarray:
        return self._envs[index].reset(seed=seed)[0]

    def outcomes(self, actions: np.ndarray, which: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        """Takes one action in each of the environments `which`, lazily; yields its observation, reward, terminated,
        truncated, environment steps, and EPISODE_INFO."""
        for index, action in zip(which, actions, strict=True):
            *outcome, info = self._envs[index].step(action)
            yield *outcome, info["repeats"], info.get(EPISODE_INFO, ())

    def close(self) -> None:
        for env in self._envs:
            env.close()


class Evaluator:
    """Runs evaluation episodes.

    The seed of episode k of the evaluation at step s is a function of (run seed, s, k), and so independent of training.

    Args:
        make_env: builds an environment; only the first one, which is filmed, may be asked to render. Its methods
            `make_batch` and `worlds` build all of them at once (see run.environments.make_env_factory).
        video_path: returns the path of the video of an evaluation's first episode, given its step; None films nothing.
        action_repeat: environment steps that each action is held for; sets the speed of the video.
        max_envs: with more episodes, each environment runs several of them.
        sample: sample the actions, with the policy's own random numbers; otherwise they are greedy.
        on_episode: called with number, return and environment steps of each episode as it ends.
    """

    def __init__(
        self,
        make_env: MakeEnv,
        seed: int,
        num_episodes: PositiveInt,
        video_path: Callable[[int], Path] | None,
        action_repeat: PositiveInt = 1,
        max_envs: PositiveInt = 10,
        sample: bool = False,
        on_episode: Callable[[int, float, int], None] = lambda *_: None,
    ):
        self._seed, self._num_episodes, self._sample = seed, num_episodes, sample
        self._video_path, self._on_episode = video_path, on_episode
        films, count = video_path is not None, min(num_episodes, max_envs)
        self._worlds: Any = make_env.worlds(num_episodes) if hasattr(make_env, "worlds") else None
        self._envs: Any = None
        if hasattr(make_env, "make_batch"):
            self._envs = make_env.make_batch(count, films)
        elif self._worlds is None:
            self._envs = SerialEnvs([make_env(films and index == 0) for index in range(count)])
        self._seconds_per_step = seconds_per_step(self._envs, action_repeat) if self._envs else 0.0

    def evaluate(self, agent: Any, step: int) -> Evaluation:
        """Runs the episodes of one evaluation, of an agent or a policy alone."""
        returns, lengths = np.zeros(self._num_episodes), np.zeros(self._num_episodes, int)
        infos: dict[str, list[float]] = {}

        def end_episode(episode: int, pairs: Iterable[tuple[str, float]]) -> None:
            for key, value in pairs:
                infos.setdefault(key, []).append(value)
            self._on_episode(episode, float(returns[episode]), int(lengths[episode]))

        run = self._run_envs if self._worlds is None else self._run_worlds
        with evaluating(agent):
            run(agent, step, returns, lengths, end_episode)
        return Evaluation(returns.tolist(), lengths.tolist(), infos)

    def _run_envs(self, agent: Any, step: int, returns: np.ndarray, lengths: np.ndarray, end_episode: Any) -> None:
        """Runs the episodes; each environment starts another one when its episode has ended."""
        waiting, running = list(range(self._num_episodes)), dict[int, int]()  # index of an environment -> its episode
        obs: dict[int, np.ndarray] = {}
        with filming(self._video_path and self._video_path(step), self._seconds_per_step) as film:

            def start_episode(index: int) -> None:
                running[index] = episode = waiting.pop(0)
                obs[index] = self._envs.reset(index, episode_seed(self._seed, EVAL_STREAM, step, episode))
                if episode == 0:
                    film.record(self._envs)

            for index in range(self._envs.count):
                start_episode(index)
            while running:
                which = list(running)
                actions = agent.act(np.stack([obs[index] for index in which]), sample=self._sample)
                for index, outcome in zip(which, self._envs.outcomes(actions, which), strict=True):
                    obs[index], reward, terminated, truncated, repeats, pairs = outcome
                    returns[running[index]] += reward
                    lengths[running[index]] += repeats
                    if running[index] == 0:
                        film.record(self._envs)
                    if terminated or truncated:
                        end_episode(running.pop(index), pairs)
                        if waiting:
                            start_episode(index)
        if film.has_failed:
            self._video_path = None  # one line is enough

    def _run_worlds(self, agent: Any, step: int, returns: np.ndarray, lengths: np.ndarray, end_episode: Any) -> None:
        """Runs the first episode of every world of a simulator; one seed is for all worlds together."""
        running = done = np.ones(self._num_episodes, bool)
        seed = episode_seed(self._seed, EVAL_STREAM, step, 0)
        obs, _ = self._worlds.reset(seed=seed, options={"reset_mask": done})
        while running.any():
            _, rewards, terminated, truncated, info = self._worlds.step(agent.act(obs, sample=self._sample))
            returns += np.where(running, rewards, 0.0)
            lengths += np.where(running, info["repeats"], 0)
            done = terminated | truncated
            for index in np.flatnonzero(running & done).tolist():
                end_episode(index, info[EPISODE_INFO][index])
            running = running & ~done
            obs, _ = self._worlds.reset(options={"reset_mask": done})

    def close(self) -> None:
        """Closes the environments."""
        for envs in filter(None, (self._envs, self._worlds)):
            envs.close()
