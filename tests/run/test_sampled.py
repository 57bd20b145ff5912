"""Sampled evaluation has its own random numbers, wherever and whenever it runs."""

from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
import torch
from agents import make_agent
from forks import ForkAgent
from runs import RUN, assert_same, rows
from same_run import timeless

import evaluate
from run.evaluation.evaluator import Evaluator
from utils import eval_mode

SAMPLED = ("env=probes:ProbeDrawn-v0", *RUN, "eval_sample=true", "num_eval_episodes=3")
CPU = torch.device("cpu")
ONE_BY_ONE = {"obs_dim": 1, "action_dim": 1}
FOREGROUND, BACKGROUND = (*SAMPLED, "eval_in_background=false"), (*SAMPLED, "eval_in_background=true")


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight") / "run"
    probes.train(folder, *FOREGROUND)
    return folder


@pytest.mark.thorough
def test_the_rows_are_the_same_beside_the_training(tmp_path: Path, straight: Path) -> None:
    run = probes.train(tmp_path / "run", *BACKGROUND)
    assert run.evaluations.background is not None
    assert_same(tmp_path / "run", straight)


def test_training_does_not_change_and_evaluations_do(tmp_path: Path, straight: Path) -> None:
    probes.train(tmp_path / "greedy", *FOREGROUND, "eval_sample=false")
    states = [torch.load(folder / "checkpoints/step_160/agent.pt") for folder in (straight, tmp_path / "greedy")]
    assert timeless(straight / "train.csv") == timeless(tmp_path / "greedy/train.csv")
    for name in ("actor", "critic", "policy"):
        ours, theirs = (state[name] for state in states)
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    sampled, greedy = (rows(folder / "eval.csv") for folder in (straight, tmp_path / "greedy"))
    assert len(sampled) == 3
    assert not {row["episode_reward"] for row in sampled} & {row["episode_reward"] for row in greedy}


def test_evaluate_samples_as_training_did_or_as_it_is_told(tmp_path: Path, straight: Path) -> None:
    as_in_training = evaluate.evaluate(straight, device="cpu", trusted=["probes"])
    assert float(rows(straight / "eval.csv")[-1]["episode_reward"]) == np.mean(as_in_training)
    again, greedy = (evaluate.evaluate(straight, device="cpu", trusted=["probes"], sample=s) for s in (True, False))
    assert again == as_in_training and greedy != again


@pytest.mark.parametrize("kind", ["sac", "td3", "sac_2018", "fork"])
def test_the_agents_own_stream_goes_on_as_if_nothing_had_been(kind: str) -> None:
    agent: Any = ForkAgent(1, 1, (-1, 1), CPU) if kind == "fork" else make_agent(f"agent={kind}", **ONE_BY_ONE)
    obs = np.zeros((4, 1), np.float32)

    def drawn(seed: int) -> list[float]:
        with eval_mode(agent), agent.sampling(seed):
            return [*agent.act(obs, sample=True).ravel(), *agent.act(obs, sample=True).ravel()]

    agent.act(obs, sample=True)
    before = torch.get_rng_state(), kind == "fork" or agent.policy.generator.get_state()
    assert drawn(5) == drawn(5) != drawn(6)
    assert torch.equal(before[0], torch.get_rng_state())
    assert kind == "fork" or torch.equal(before[1], agent.policy.generator.get_state())


def test_the_stream_is_the_seeds_and_the_steps() -> None:
    agent = make_agent(**ONE_BY_ONE)

    def returns(seed: int, step: int) -> list[float]:
        evaluator = Evaluator(lambda _: _Flat(), seed, 2, None, sample=True)
        return evaluator.evaluate(agent, step).returns

    assert returns(1, 10) == returns(1, 10)
    assert len({tuple(returns(seed, step)) for seed, step in ((1, 10), (2, 10), (1, 20))}) == 3


class _Flat(probes.ActionMatters):
    def step(self, action: np.ndarray) -> tuple:
        *rest, _ = super().step(action)
        return (*rest, {"repeats": 1})
