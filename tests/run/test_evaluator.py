"""Evaluation episodes: they are independent of training, stepped together, and of any length."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from counting import CountingVec

from envs.simulator import Simulator
from run.evaluation.evaluator import Evaluator


class Seeded(gym.Env):
    """Lasts 3 to 7 steps and pays 1 to 10 a step, both drawn from its seed; records its seeds."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    seeds: list[int]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.seeds.append(seed)  # type: ignore[arg-type]
        self.left, self.pay = self.np_random.integers(3, 8), self.np_random.integers(1, 11)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.left -= 1
        return np.zeros(1, np.float32), float(self.pay), self.left == 0, False, {"repeats": 2}


class Still:
    training = True

    def __init__(self, width: int = 1) -> None:
        self.width = width
        self.batches: list[int] = []
        self.threads: set[int] = set()

    def train(self, training: bool = True) -> None:
        self.training = training

    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        assert not sample and not self.training
        self.batches.append(len(obs))
        self.threads.add(torch.get_num_threads())
        return np.zeros((len(obs), self.width), np.float32)


def evaluate(num_episodes: int, step: int = 100, max_envs: int = 10) -> tuple[Any, Still, list[int]]:
    seeds: list[int] = []

    def make_env(render: bool) -> gym.Env:
        env = Seeded()
        env.seeds = seeds
        return env

    agent = Still()
    evaluator = Evaluator(make_env, 1, num_episodes, None, max_envs=max_envs)
    return evaluator.evaluate(agent, step), agent, seeds


def test_episodes_are_stepped_together_and_end_one_by_one() -> None:
    result, agent, _ = evaluate(5)
    assert agent.batches[0] == 5
    assert len(agent.batches) == max(result.lengths) // 2  # no more calls than the longest episode has decisions
    assert len(set(result.lengths)) > 1
    assert agent.training  # in training mode again


def test_an_evaluation_has_one_thread_whatever_the_run_has() -> None:
    own = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        _, agent, _ = evaluate(2)
        assert (agent.threads, torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(own)


def test_the_same_episodes_whatever_the_number_of_environments() -> None:
    together, _, seeds = evaluate(12, max_envs=12)
    in_turn, agent, same_seeds = evaluate(12, max_envs=3)
    assert max(agent.batches) == 3
    assert sorted(seeds) == sorted(same_seeds)
    assert together == in_turn


def test_each_evaluation_has_episodes_of_its_own() -> None:
    _, _, seeds = evaluate(5, step=100)
    _, _, later = evaluate(5, step=200)
    _, _, again = evaluate(3, step=100)
    assert not set(seeds) & set(later)
    assert again == seeds[:3]


def test_only_the_first_environment_is_asked_to_render(tmp_path: Path) -> None:
    asked: list[bool] = []

    def make_env(render: bool) -> gym.Env:
        asked.append(render)
        return Seeded()

    Evaluator(make_env, 1, 3, lambda step: tmp_path / f"{step}.mp4")
    assert asked == [True, False, False]


class Counted:
    """Makes a simulator for evaluations."""

    def worlds(self, count: int) -> Simulator:
        return Simulator(CountingVec(count, "Disabled"), "counting", 3)


def make_seeded(render: bool) -> gym.Env:
    env = Seeded()
    env.seeds = []
    return env


@pytest.mark.parametrize("make_env", [make_seeded, Counted()], ids=["single", "simulator"])
def test_each_episode_is_announced_as_it_ends(make_env: Any) -> None:
    ended: dict[int, tuple[float, int]] = {}
    note = lambda episode, value, length: ended.update({episode: (value, length)})  # noqa: E731
    result = Evaluator(make_env, 1, 5, None, max_envs=2, on_episode=note).evaluate(Still(2), 100)
    assert ended == dict(enumerate(zip(result.returns, result.lengths, strict=True)))
