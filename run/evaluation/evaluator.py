"""Evaluation episodes on environments of their own, stepped together with batched actions."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from envs.episodes import EVAL_ACTIONS_STREAM, EVAL_STREAM, episode_seed
from settings.types import PositiveInt
from settings.validated import Validated
from utils import eval_mode, require_finite
from video import filming, seconds_per_step

MakeEnv = Callable[[bool], gym.Env]  # whether it will be rendered -> an environment


@dataclass
class Evaluation:
    """Returns and lengths (in environment steps), episode by episode."""

    returns: list[float]
    lengths: list[int]


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it torch has one thread. Ten rows are not worth a second one, and with another number products round
    otherwise: an evaluation beside the training, one that stops it and `evaluate.py` have to give the same numbers.
    """
    own = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(own)


class Evaluator(Validated):
    """Runs evaluation episodes.

    Episode k of the evaluation at step s starts from a seed that is a function of (run seed, s, k): it depends on
    nothing else that the run does, and nothing else depends on it.

    Args:
        make_env: builds an environment; the first, which is filmed, is asked to render.
        seed: the run's seed.
        num_episodes: per evaluation.
        video_path: where the first episode's video of an evaluation goes, given its step; None films nothing.
        action_repeat: environment steps that each action is held for, for the video's speed.
        max_envs: environments kept; more episodes than these are run one after the other in them.
        sample: whether actions are sampled, with random numbers that are a function of (run seed, s); otherwise they
            are the greedy ones.
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
    ):
        self._seed = seed
        self._num_episodes = num_episodes
        self._sample = sample
        self._video_path = video_path
        films = video_path is not None
        self._envs = [make_env(films and index == 0) for index in range(min(num_episodes, max_envs))]
        self._seconds_per_step = seconds_per_step(self._envs[0], action_repeat)

    def evaluate(self, agent: Any, step: int) -> Evaluation:
        """Plays the episodes.

        Args:
            agent: has `act(obs, sample)` for a batch of observations, and to sample from a stream apart
                `sampling(seed)` (see agent.Agent).
            step: environment steps of training so far.
        """
        returns = [0.0] * self._num_episodes
        lengths = [0] * self._num_episodes
        waiting = list(range(self._num_episodes))
        playing: dict[int, int] = {}  # environment -> the episode it plays
        obs: dict[int, np.ndarray] = {}
        with ExitStack() as stack:
            stack.enter_context(one_thread())
            stack.enter_context(eval_mode(agent))
            stack.enter_context(self._stream(agent, step))
            recorder = None
            if self._video_path is not None:
                recorder = stack.enter_context(filming(self._video_path(step), self._seconds_per_step))

            def start(index: int) -> None:
                playing[index] = episode = waiting.pop(0)
                obs[index], _ = self._envs[index].reset(seed=episode_seed(self._seed, EVAL_STREAM, step, episode))
                if recorder and episode == 0:
                    recorder.record(self._envs[index])

            for index in range(len(self._envs)):
                start(index)
            while playing:
                actions = agent.act(np.stack([obs[index] for index in playing]), sample=self._sample)
                require_finite("action", actions)
                for (index, episode), action in zip(list(playing.items()), actions, strict=True):
                    obs[index], reward, terminated, truncated, info = self._envs[index].step(action)
                    returns[episode] += float(reward)
                    lengths[episode] += info["repeats"]
                    if recorder and episode == 0:
                        recorder.record(self._envs[index])
                    if terminated or truncated:
                        del playing[index]
                        if waiting:
                            start(index)
        if recorder and not recorder.renders:
            self._video_path = None
        return Evaluation(returns, lengths)

    def _stream(self, agent: Any, step: int) -> AbstractContextManager[None]:
        """What the actions' noise comes from."""
        if not self._sample or not hasattr(agent, "sampling"):
            return nullcontext()
        return agent.sampling(episode_seed(self._seed, EVAL_ACTIONS_STREAM, step))

    def close(self) -> None:
        for env in self._envs:
            env.close()
