"""The library: train.py's loop for a given agent and environment."""

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import probes
import pytest
import torch
from hydra.utils import instantiate

from agent.actor import DiagGaussianActor
from agent.critic import CriticEnsemble
from agent.execution import Eager
from agent.sac import SACAgent
from agent.temperature import LearnedTemperature
from logger import Logger
from replay_buffer import ReplayBuffer
from run.evaluation.evaluator import Evaluation
from run.library import evaluate, shapes, train
from sinks.csv_files import CsvSink

CPU = torch.device("cpu")
SIZE = {"hidden_dim": 16, "hidden_depth": 1}


def make(env: gym.Env, **values: Any) -> SACAgent:
    parts = {
        "actor": partial(DiagGaussianActor, log_std_bounds=(-5, 2), **SIZE),
        "critic": partial(CriticEnsemble, **SIZE),
        "temperature": LearnedTemperature,
    }
    rates = {"actor_lr": 1e-2, "critic_lr": 1e-2, "alpha_lr": 1e-2, "batch_size": 32}
    return SACAgent(**(shapes(env, "cpu") | parts | rates | values))


def test_an_agent_learns_what_a_probe_rewards() -> None:
    env = gym.make("ProbeActionMatters-v0")
    agent = make(env)
    result = train(agent, env, num_steps=600, num_seed_steps=100)
    assert (result.steps, result.episodes, len(result.replay_buffer)) == (600, 600, 600)
    assert agent.act(np.zeros((1, 1), np.float32)).item() == pytest.approx(0.5, abs=0.1)
    assert agent.num_updates == 500
    assert np.mean(evaluate(agent, env, episodes=5)) > -0.01


def test_without_replacement_the_first_update_waits_for_a_batch() -> None:
    env = gym.make("ProbeActionMatters-v0")
    agent, buffer = make(env), ReplayBuffer((1,), (1,), 50, CPU, with_replacement=False)
    train(agent, env, num_steps=40, num_seed_steps=0, replay_buffer=buffer)
    assert agent.num_updates == 40 - 32


def test_a_later_call_continues_with_agent_and_buffer() -> None:
    """With unscaled action bounds, environments that stay open, held actions, and a buffer that was filled before."""
    envs = [gym.make("Pendulum-v1") for _ in range(2)]
    agent = make(envs[0])
    first = train(agent, envs, 80, num_seed_steps=40, action_repeat=2)
    assert first.steps == 80 and first.replay_buffer.num_added == 40 and agent.num_updates == 20
    assert np.abs(first.replay_buffer.rows[:40, 3]).max() <= 1 and not isinstance(agent.execution, Eager)
    again = train(agent, envs[1], 20, num_seed_steps=0, replay_buffer=first.replay_buffer, seed=2)
    assert again.replay_buffer is first.replay_buffer and again.replay_buffer.num_added == 60
    assert agent.num_updates == 40
    envs[0].step(np.zeros(1))


def test_the_loop_is_that_of_train_py(tmp_path: Path) -> None:
    run = probes.train(tmp_path / "run", "env=ProbeDrawn-v0", "num_train_steps=150", "num_seed_steps=60", "seed=3")
    torch.manual_seed(3)
    env = gym.make("ProbeDrawn-v0")
    torch.manual_seed(3)
    node = {key: value for key, value in run.cfg.agent.items() if key != "name"}
    agent = instantiate(node, _convert_="all")(**shapes(env, "cpu"))
    result = train(agent, env, 150, num_seed_steps=60, seed=3)
    np.testing.assert_array_equal(result.replay_buffer.rows, run.replay_buffer.rows)
    assert all(map(torch.equal, agent.critic.parameters(), run.agent.critic.parameters()))


def test_the_users_logger_evaluator_and_checkpoints(tmp_path: Path) -> None:
    class Steps:
        def evaluate(self, agent: Any, step: int) -> Evaluation:
            return Evaluation([float(step)], [1])

    env, saved = gym.make("ProbeTimeLimit-v0"), list[int]()
    logger = Logger(tmp_path, {"csv": CsvSink})
    frequencies = {"eval_frequency": 40, "checkpoint_frequency": 30}
    result = train(
        make(env), env, 100, num_seed_steps=20, logger=logger, evaluator=Steps(), checkpoint=saved.append, **frequencies
    )
    logger.close()
    assert result.last_return == 100 and saved == [0, 30, 60, 90, 100]
    assert [line.split(",")[1:3] for line in (tmp_path / "eval.csv").read_text().splitlines()[1:]] == [
        ["40", "40.0"], ["80", "80.0"], ["100", "100.0"]
    ]  # fmt: skip
    assert (tmp_path / "train.csv").read_text().count("\n") == 21


def test_small_networks_train_on_one_thread() -> None:
    env, threads = gym.make("ProbeTimeLimit-v0"), list[int]()
    large = make(env, critic=partial(CriticEnsemble, hidden_dim=512, hidden_depth=2))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for agent in (make(env), large):
            train(agent, env, 5, checkpoint=lambda _: threads.append(torch.get_num_threads()))
        assert threads == [1, 1, 2, 2] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
