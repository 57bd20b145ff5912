"""A policy alone: saved, loaded, and no more than that."""

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents import OBS_DIM, SMALL, make_agent

from agent.execution import set_execution
from agent.policy import UniformPolicy, load_policy
from utils import UserError


@pytest.mark.parametrize(
    "overrides", [(), ("agent=sac_v",), ("agent=simba",), ("agent=sac_2018", "agent.actor.num_components=3")]
)
def test_a_loaded_policy_acts_as_the_agent_does(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    agent = make_agent(*overrides, *SMALL)
    agent.save_policy(tmp_path / "policy.pt")
    policy = load_policy(tmp_path / "policy.pt")
    obs = np.random.default_rng(0).normal(size=(30, OBS_DIM)).astype(np.float32)
    np.testing.assert_array_equal(policy.act(obs), agent.act(obs))
    assert policy.act(obs[0], sample=True).shape == (6,)
    assert (policy.critic is not None) == (len(overrides) == 2)  # only a mixture asks a critic


class Trap:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.path,)


def test_a_strangers_file_runs_nothing(tmp_path: Path) -> None:
    torch.save({"format": "policy-1", "networks": Trap(str(tmp_path / "ran"))}, tmp_path / "trap.pt")
    torch.save({"format": "other"}, tmp_path / "other.pt")
    part = {"target": "os.system", "kwargs": {}, "weights": {}}
    torch.save({"format": "policy-1", "networks": {"actor": part}, "action_range": [-1, 1]}, tmp_path / "target.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "other.pt").read_bytes()[:100])
    for name, target in {"import": "agent.policy.import_module", "load": "agent.policy.load_policy"}.items():
        part = {"target": target, "kwargs": {"name": "this"}, "weights": {}}
        torch.save(
            {"format": "policy-1", "networks": {"actor": part}, "action_range": [-1, 1]}, tmp_path / f"{name}.pt"
        )
    torch.save({"format": "policy-1", "networks": {}}, tmp_path / "empty.pt")
    for name in ("trap", "other", "target", "import", "load", "empty", "cut", "absent"):
        with pytest.raises(UserError, match=f"{name}.pt"):
            load_policy(tmp_path / f"{name}.pt")
    assert not (tmp_path / "ran").exists()


def test_uniform_actions_fill_the_range_and_continue_after_a_restart() -> None:
    policy, other = UniformPolicy(2, (-1.0, 1.0), seed=1), UniformPolicy(2, (-1.0, 1.0), seed=2)
    actions = policy.act(np.zeros((10_000, 3)))
    assert actions.shape == (10_000, 2) and actions.dtype == np.float32
    assert abs(actions.mean()) < 0.02 and actions.min() < -0.99 and actions.max() > 0.99
    other.load_state_dict(policy.state_dict())
    np.testing.assert_array_equal(policy.act(np.zeros(3)), other.act(np.zeros(3)))


MIXTURE = ("agent=sac_2018", "agent.actor.num_components=3")
FOLLOWERS = ("agent/observation_normaliser=running", "agent/exploration=held")


@pytest.mark.parametrize("overrides", [(), MIXTURE, ("agent=simba",), ("agent=crossq",), FOLLOWERS])
def test_recorded_acting_is_the_eager_one_to_the_last_bit(overrides: tuple[str, ...]) -> None:
    plain, other = make_agent(*overrides, *SMALL), make_agent(*overrides, *SMALL)
    with torch.no_grad():
        for parameter in other.actor.parameters():
            parameter.add_(0.1)
    recorded = copy.deepcopy(plain)
    set_execution(recorded, "recorded", torch.device("cpu"))
    random = np.random.default_rng(0)

    def compare(agent: Any) -> None:
        for state in (plain, other, plain):  # a recording reads the networks as they are now
            for one in (eager, agent):
                one.load_state_dict(copy.deepcopy(state.state_dict()))
            for shape in [(OBS_DIM,), (1, OBS_DIM), (5, OBS_DIM)] * 2:
                obs = random.normal(size=shape).astype(np.float32)
                for sample in (False, True):
                    np.testing.assert_array_equal(agent.act(obs, sample), eager.act(obs, sample))
        assert agent.policy.choose.recorded == 4

    eager = copy.deepcopy(plain)
    compare(recorded)
    copied = copy.deepcopy(recorded)
    recorded.load_state_dict(copy.deepcopy(other.state_dict()))  # which the copy has nothing to do with
    compare(copied)
