"""Runs evaluation episodes in environments of their own. These are stepped together with batched actions."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from envs.episodes import EPISODE_INFO, EVAL_ACTIONS_STREAM, EVAL_STREAM, episode_seed
from settings.types import PositiveInt
from settings.validated import Validated
from utils import eval_mode, require_finite
from video import filming, seconds_per_step

MakeEnv = Any  # Callable[[bool], gym.Env], given whether it will be rendered; may have `make_batch` or `worlds`


@dataclass
class Evaluation:
    """The result of an evaluation.

    Attributes:
        returns, lengths: the undiscounted return and the environment steps of each episode.
        infos: by key of `info_keys`, the values of the episodes that have one (see envs.episodes.EpisodeInfo).
        preview: small frames of the first episode's video (T, H, W, 3), uint8; None if it was not filmed.
        preview_fps: frames of the preview per simulated second.
    """

    returns: list[float]
    lengths: list[int]
    infos: dict[str, list[float]] = field(default_factory=dict)
    preview: np.ndarray | None = None
    preview_fps: float = 0.0


@contextmanager
def evaluating(agent: Any, step: int, sample_seed: int | None) -> Iterator[None]:
    """Within its block, an agent acts as in the evaluation at `step`, on one thread.

    Evaluations in this process, in the background and by `evaluate.py` have to return the same numbers, and matmuls
    round differently with another number of threads. Batches of ten rows would gain nothing from more threads.

    Args:
        sample_seed: the run's seed, which determines the sampled actions together with `step`; None if actions are
            greedy.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ExitStack() as stack:
            stack.enter_context(eval_mode(agent))
            if sample_seed is not None and hasattr(agent, "sampling"):
                stack.enter_context(agent.sampling(episode_seed(sample_seed, EVAL_ACTIONS_STREAM, step)))
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
        """Takes one action in each of the environments `which`, lazily, one after the other.

        Yields:
            Observation, reward, terminated, truncated, environment steps, and (key, value) pairs of EPISODE_INFO.
        """
        for index, action in zip(which, actions, strict=True):
            *outcome, info = self._envs[index].step(action)
            yield *outcome, info["repeats"], info.get(EPISODE_INFO, ())

    def close(self) -> None:
        for env in self._envs:
            env.close()


class EvaluationProgress:
    """Receives the progress of an evaluation, and ignores it; subclasses may show it."""

    def stepped(self, steps: int) -> None:
        """Called after this number of further environment steps."""

    def ended(self, episode: int, value: float, length: int) -> None:
        """Called when an episode, counted from 0, ends with the return `value` after `length` environment steps."""


class Evaluator(Validated):
    """Runs evaluation episodes.

    The seed of episode k of the evaluation at step s is a function of (run seed, s, k). So episodes do not depend on
    anything else that the run does, and training does not depend on them.

    Args:
        make_env: builds an environment; only the first one, which is filmed, may be asked to render. A method
            `make_batch` builds all of them at once (see run.environments); a method `worlds` builds a
            simulator (see envs/simulator.py) with one world per episode.
        video_path: returns the path of the video of an evaluation's first episode, given its step; None films nothing.
        action_repeat: environment steps that each action is held for; sets the speed of the video.
        max_envs: with more episodes, each environment runs several of them.
        sample: sample the actions, with random numbers that are a function of (run seed, s); otherwise they are greedy.
        progress: receives steps and ends of episodes; None ignores them.
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
        progress: EvaluationProgress | None = None,
    ):
        self._seed = seed
        self._progress = progress or EvaluationProgress()
        self._num_episodes = num_episodes
        self._sample = sample
        self._video_path = video_path
        films = video_path is not None
        self._worlds = make_env.worlds(num_episodes) if hasattr(make_env, "worlds") else None
        count = min(num_episodes, max_envs)
        self._envs: Any = None
        if hasattr(make_env, "make_batch"):
            self._envs = make_env.make_batch(count, films)
        elif self._worlds is None:
            self._envs = SerialEnvs([make_env(films and index == 0) for index in range(count)])
        self._seconds_per_step = seconds_per_step(self._envs, action_repeat) if self._envs else 0.0

    def evaluate(self, agent: Any, step: int) -> Evaluation:
        """Runs the episodes of one evaluation.

        Args:
            agent: has `act(obs, sample)` for a batch of observations, and `train(bool)`. To sample from random numbers
                that training does not use, it also has `sampling(seed)` (see agent.Agent).
        """
        with evaluating(agent, step, self._seed if self._sample else None):
            if self._worlds is not None:
                return self._first_episodes(agent, self._worlds, episode_seed(self._seed, EVAL_STREAM, step, 0))
            return self._episodes(agent, step)

    def _episodes(self, agent: Any, step: int) -> Evaluation:
        """Runs the episodes; each environment starts another one when its episode has ended."""
        returns = [0.0] * self._num_episodes
        lengths = [0] * self._num_episodes
        infos: list[dict[str, float]] = [{}] * self._num_episodes
        waiting = list(range(self._num_episodes))
        running: dict[int, int] = {}  # index of an environment -> its episode
        obs: dict[int, np.ndarray] = {}
        with ExitStack() as stack:
            film = None
            if self._video_path is not None:
                film = stack.enter_context(filming(self._video_path(step), self._seconds_per_step))

            def start_episode(index: int) -> None:
                running[index] = episode = waiting.pop(0)
                obs[index] = self._envs.reset(index, episode_seed(self._seed, EVAL_STREAM, step, episode))
                if film and episode == 0:
                    film.record(self._envs)

            for index in range(self._envs.count):
                start_episode(index)
            while running:
                together = np.stack([obs[index] for index in running])
                require_finite("an evaluation's observation", together)
                actions = agent.act(together, sample=self._sample)
                require_finite("action", actions)
                which = list(running)
                for index, outcome in zip(which, self._envs.outcomes(actions, which), strict=True):
                    episode = running[index]
                    obs[index], reward, terminated, truncated, repeats, info = outcome
                    returns[episode] += float(reward)
                    lengths[episode] += repeats
                    if film and episode == 0:
                        film.record(self._envs)
                    self._progress.stepped(repeats)
                    if terminated or truncated:
                        infos[episode] = dict(info)
                        self._progress.ended(episode, returns[episode], lengths[episode])
                        del running[index]
                        if waiting:
                            start_episode(index)
        require_finite("an evaluation's return", returns)
        if film and not film.renders:
            self._video_path = None
        return Evaluation(returns, lengths, _by_key(infos), *(film.preview() if film else ()))

    def _first_episodes(self, agent: Any, worlds: Any, seed: int) -> Evaluation:
        """Runs the first episode of every world of a simulator; `seed` seeds all worlds together."""
        count = self._num_episodes
        returns, lengths, infos = np.zeros(count), np.zeros(count, int), [dict[str, float]() for _ in range(count)]
        running, done = np.ones(count, bool), np.ones(count, bool)
        obs, _ = worlds.reset(seed=seed, options={"reset_mask": done})
        while running.any():
            require_finite("an evaluation's observation", obs)
            actions = agent.act(obs, sample=self._sample)
            require_finite("action", actions)
            _, rewards, terminated, truncated, info = worlds.step(actions)
            returns += np.where(running, rewards, 0.0)
            lengths += np.where(running, info["repeats"], 0)
            done = terminated | truncated
            self._progress.stepped(int(info["repeats"][running].sum()))
            for index in np.flatnonzero(running & done):
                infos[index] = dict(info[EPISODE_INFO][index])
                self._progress.ended(int(index), float(returns[index]), int(lengths[index]))
            running &= ~done
            obs, _ = worlds.reset(options={"reset_mask": done})
        require_finite("an evaluation's return", returns)
        return Evaluation(returns.tolist(), lengths.tolist(), _by_key(infos))

    def close(self) -> None:
        """Closes the environments."""
        for envs in filter(None, (self._envs, self._worlds)):
            envs.close()


def _by_key(infos: list[dict[str, float]]) -> dict[str, list[float]]:
    """Collects the values of each key over the episodes that have it."""
    keys = dict.fromkeys(key for values in infos for key in values)
    return {key: [values[key] for values in infos if key in values] for key in keys}
