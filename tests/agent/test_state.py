"""An agent's state holds everything that its training continues from."""

import copy

import numpy as np
import pytest
from agents import IMAGE, OBS_DIM, Always, Silent, make_agent, make_batch
from same_run import same
from stand_in_graphs import AGENTS, is_discrete, sees_images


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
