"""Held noise: its distribution, which environment and episode it belongs to, and that it survives a restart."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from agents import ACTION_DIM, OBS_DIM, SMALL, make_agent

from agent.exploration import HeldNoise

CPU = torch.device("cpu")
HELD = "agent/exploration=held"


class Counter:
    """Draws 1, 2, 3, … in place of noise, so that no two rows are the same."""

    def __init__(self) -> None:
        self.drawn = 0

    def __call__(self, rows: int) -> torch.Tensor:
        self.drawn += rows
        return torch.arange(self.drawn - rows + 1, self.drawn + 1.0)[:, None].repeat(1, 2)


def steps_held(held: HeldNoise, num_envs: int, steps: int) -> list[int]:
    """For how many steps each noise was held, without the first and the last of each environment."""
    counter, seen = Counter(), []
    for _ in range(steps):
        seen.append(held(counter, num_envs)[:, 0].clone())
    lengths = []
    for column in torch.stack(seen, dim=1):
        _, counts = torch.unique_consecutive(column, return_counts=True)
        assert len(column.unique()) == len(counts)  # noise that was replaced never comes back
        lengths += counts[1:-1].tolist()
    return lengths


@pytest.mark.parametrize(("exponent", "max_steps"), [(2.0, 16), (1.0, 3)])
def test_the_law_is_the_zeta_law_cut_off(exponent: float, max_steps: int) -> None:
    lengths = steps_held(HeldNoise(CPU, exponent, max_steps), 5, 5000)
    found = np.bincount(lengths, minlength=max_steps + 1) / len(lengths)
    assert len(found) == max_steps + 1 and found[0] == 0
    weights = [1 / n**exponent for n in range(1, max_steps + 1)]
    expected = np.array(weights) / sum(weights)
    deviation = np.sqrt(expected * (1 - expected) / len(lengths))
    assert (np.abs(found[1:] - expected) < 5 * deviation).all()


def test_each_environment_holds_its_own_and_an_end_lets_go() -> None:
    torch.manual_seed(3)
    held, counter = HeldNoise(CPU, 0.1, 1000), Counter()  # held for long
    first = held(counter, 3).clone()
    assert first[:, 0].tolist() == [1, 2, 3]
    assert torch.equal(held(counter, 3), first)
    held.release(np.array([False, True, False]))
    assert held(counter, 3)[:, 0].tolist() == [1, 4, 3]
    assert held(counter, 2)[:, 0].tolist() == [5, 6]  # the number of environments has changed: all noise is new
    other, others = HeldNoise(CPU, 0.1, 1000), deepcopy(counter)
    other.load_state_dict(held.state_dict())
    assert all(torch.equal(held(counter, 2), other(others, 2)) for _ in range(2000))


def test_an_agents_action_is_its_policys_with_the_noise_that_is_held_in_training() -> None:
    agent = make_agent(*SMALL, HELD, "agent.exploration.exponent=0.1", "agent.exploration.max_steps=1000")
    obs = np.random.default_rng(0).normal(size=(3, OBS_DIM)).astype(np.float32)
    first = agent.act(obs, sample=True)
    noise = agent.exploration.state_dict()["noise"].clone()
    assert noise.shape == (3, ACTION_DIM)
    dist = agent.actor(torch.from_numpy(obs + 1))
    expected = torch.tanh(dist.mu + dist.log_std.exp() * noise).detach()
    np.testing.assert_allclose(agent.act(obs + 1, sample=True), expected, atol=1e-6)  # the same noise, another obs
    np.testing.assert_allclose(agent.act(obs + 1), torch.tanh(dist.mu).detach(), atol=1e-6)
    agent.train(False)
    assert not np.array_equal(agent.act(obs, sample=True), agent.act(obs, sample=True))
    agent.train(True)
    np.testing.assert_array_equal(agent.act(obs, sample=True), first)
    ended = np.eye(3, dtype=bool)
    agent.observe(obs, first, np.zeros(3), obs, ended[0], ended[1])  # an end of either kind lets go
    assert (agent.act(obs, sample=True) == first).all(1).tolist() == [False, False, True]
