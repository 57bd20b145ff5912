"""An agent's state holds everything that its training continues from."""

import copy
from dataclasses import replace
from typing import Any

import composed
import numpy as np
import pytest
import torch
from agents import ACTION_DIM, IMAGE, OBS_DIM, Always, Silent, make_agent, make_batch
from forks import ForkAgent
from same_run import same
from stand_in_graphs import AGENTS, is_discrete, sees_images

from run.agents import build_acting_agent
from run.env_spec import EnvSpec
from settings.obs_spec import ObsSpec
from utils import UserError


@pytest.mark.parametrize("name", AGENTS)
def test_state_dict_continues_the_same_training(name: str) -> None:
    agent, other = make_agent(*AGENTS[name]), make_agent(*AGENTS[name], "seed=5")
    images = sees_images(name)
    buffer, log = Always(make_batch(32, images, is_discrete(name))), Silent()
    obs = np.ones((4, *IMAGE), np.uint8) if images else np.ones((4, OBS_DIM), np.float32)
    for step in range(3):
        agent.update(buffer, log, step)
    assert not same(other.state_dict(), agent.state_dict())
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    for continued in (agent, other):
        for step in range(3, 6):
            continued.update(buffer, log, step)
    assert same(other.state_dict(), agent.state_dict())
    assert np.array_equal(agent.act(obs, sample=True), other.act(obs, sample=True))


def test_a_deep_copy_is_refused() -> None:
    """The views of its networks would show weights that no longer change."""
    with pytest.raises(TypeError, match=r"load this one's state_dict\(\)$"):
        copy.deepcopy(make_agent())


class Counts(ForkAgent):
    """Has a state that acting changes."""

    num_acts = 0

    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        self.num_acts += 1
        return super().act(obs, sample)

    def state_dict(self) -> dict[str, Any]:
        return {"num_acts": self.num_acts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_acts = state["num_acts"]


def built(kind: type) -> Any:
    node = {"name": "own", "_target_": f"{__name__}.{kind.__name__}", "_partial_": True}
    spec = EnvSpec(ObsSpec.of_shape((OBS_DIM,)), (ACTION_DIM,))
    return build_acting_agent(replace(composed.settings("agent=sac"), agent=node), spec, torch.device("cpu"))


def test_acting_once_when_it_is_built_leaves_no_trace() -> None:
    assert built(Counts).num_acts == 0


class Renamed(ForkAgent):
    """Saves its actor under one name, and looks for it under another."""

    def state_dict(self) -> dict[str, Any]:
        return {"actor": self.actor.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.actor.load_state_dict(state["policy"])


def test_a_state_that_could_not_be_resumed_is_found_when_the_agent_is_built() -> None:
    with pytest.raises(UserError, match=r"\.Renamed: it cannot load its own state_dict \(KeyError in .*: 'policy'\)$"):
        built(Renamed)
