"""An agent's state holds everything that its training continues from."""

import copy
from dataclasses import replace
from typing import Any

import composed
import numpy as np
import pytest
import torch
from agents import ACTION_DIM, IMAGE, OBS_DIM, SMALL, Always, Silent, make_agent, make_batch
from forks import ForkAgent
from same_run import same
from stand_in_graphs import AGENTS, is_discrete, sees_images

from run.agents import build_acting_agent, build_agent
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
    with pytest.raises(TypeError, match=r"^SACAgent: an agent cannot be copied.* load this one's state_dict\(\)$"):
        copy.deepcopy(make_agent())


def test_acting_once_when_it_is_built_leaves_no_trace() -> None:
    cfg = composed.settings("agent=flash_sac", *SMALL)  # its noise is held and drawn from the agent's own generator
    spec, device = EnvSpec(ObsSpec.of_shape((OBS_DIM,)), (ACTION_DIM,)), torch.device("cpu")
    states = []
    for build in (build_agent, build_acting_agent):
        torch.manual_seed(0)
        states.append(build(cfg, spec, device).state_dict())
    assert same(*states)


class Renamed(ForkAgent):
    """Saves its actor under one name, and looks for it under another."""

    def state_dict(self) -> dict[str, Any]:
        return {"actor": self.actor.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.actor.load_state_dict(state["policy"])


def test_a_state_that_could_not_be_resumed_is_found_when_the_agent_is_built() -> None:
    cfg = replace(
        composed.settings("agent=sac"), agent={"name": "renamed", "_target_": f"{__name__}.Renamed", "_partial_": True}
    )
    with pytest.raises(UserError, match=r"\.Renamed: it cannot load its own state_dict \(KeyError in .*: 'policy'\)$"):
        build_acting_agent(cfg, EnvSpec(ObsSpec.of_shape((OBS_DIM,)), (ACTION_DIM,)), torch.device("cpu"))
