"""Policies without their agents: they are saved and loaded, they act, and loading a file runs none of its code."""

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents import FROM_IMAGES, IMAGE, OBS_DIM, SMALL, Always, Silent, make_agent, make_batch
from strangers import Evil

from agent.policy import UniformPolicy, load_policy
from run.execution import set_execution
from utils import UserError, eval_mode


@pytest.mark.parametrize(
    "overrides",
    [
        *((), ("agent=sac_v",), ("agent=simba",), ("agent=crossq",), ("agent=flash_sac",)),
        ("agent=sac_2018", "agent.actor.num_components=3"),
    ],
)
def test_a_loaded_policy_acts_as_the_agent_does(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    agent = make_agent(*overrides, *SMALL)
    agent.update(Always(make_batch(32)), Silent(), 0)  # moves running statistics, which acting goes by
    agent.save_policy(tmp_path / "policy.pt")
    policy = load_policy(tmp_path / "policy.pt")
    obs = np.random.default_rng(0).normal(size=(30, OBS_DIM)).astype(np.float32)
    np.testing.assert_array_equal(policy.act(obs), agent.act(obs))
    assert policy.act(obs[0], sample=True).shape == (6,)
    assert (policy.critic is not None) == (len(overrides) == 2)  # only a mixture asks a critic


def test_a_strangers_file_runs_nothing(mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is a saved policy but for one thing, and is refused because of it."""
    path = tmp_path / "policy.pt"
    make_agent(*SMALL).save_policy(str(path))
    whole = torch.load(path)

    def refuse(saved: Any, why: str) -> None:
        torch.save(saved, path)
        with pytest.raises(UserError, match=f"^{re.escape(str(path))}: {why}"):
            load_policy(path)
        assert not mark.exists()

    monkeypatch.setattr("agent.actor.Imported", torch.nn.Linear, raising=False)
    for target in (
        *("evil_module.Thing", "torch.nn.modules.linear.Linear", "os.system"),  # not of this project
        *("agent.policy.Policy", "agent.policy.import_module", "agent.policy.load_policy"),  # not networks
        *("agent.actor.Imported", "agent.actor.nn.Linear", "agent.actor.torch", "agent.actor.nothing", "nowhere"),
    ):
        saved = copy.deepcopy(whole)
        saved["networks"]["actor"]["target"] = target
        refuse(saved, f"it needs {target}, not one of this project's networks")
    refuse(whole | {"networks": Evil(mark)}, "not a policy that can be read")
    refuse(whole | {"format": "other"}, "not a policy of format")
    with pytest.raises(UserError, match="not a policy that can be read"):
        load_policy(tmp_path / "absent.pt")


OWN = """
from torch import nn
class OneLayer(nn.Sequential):
    def __init__(self, shape):
        super().__init__(nn.Linear(shape.in_dim, shape.out_dim))
"""


def test_a_network_of_a_trusted_package_is_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_nets.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    agent = make_agent(*SMALL, "+agent.actor.network={_target_: my_nets.OneLayer, _partial_: true}")
    agent.save_policy(tmp_path / "policy.pt")
    with pytest.raises(UserError, match=r"it needs my_nets\.OneLayer, .*trust="):
        load_policy(tmp_path / "policy.pt")
    obs = np.ones(OBS_DIM, np.float32)
    np.testing.assert_array_equal(load_policy(tmp_path / "policy.pt", trusted=["my_nets"]).act(obs), agent.act(obs))


def test_uniform_actions_fill_the_range_and_continue_after_a_restart() -> None:
    policy, other = UniformPolicy(2, (-1.0, 1.0), seed=1), UniformPolicy(2, (-1.0, 1.0), seed=2)
    actions = policy.act(np.zeros((10_000, 3)))
    assert actions.shape == (10_000, 2) and actions.dtype == np.float32
    assert abs(actions.mean()) < 0.02 and actions.min() < -0.99 and actions.max() > 0.99
    other.load_state_dict(policy.state_dict())
    np.testing.assert_array_equal(policy.act(np.zeros(3)), other.act(np.zeros(3)))


MIXTURE = ("agent=sac_2018", "agent.actor.num_components=3")


@pytest.mark.parametrize("overrides", [(), MIXTURE, ("agent=crossq",), ("agent=sac_discrete",)])
def test_an_image_has_the_same_greedy_action_alone_and_in_a_batch(overrides: tuple[str, ...]) -> None:
    agent = make_agent(*overrides, *SMALL, *FROM_IMAGES)
    images = np.random.default_rng(0).integers(256, size=(3, *IMAGE), dtype=np.uint8)
    with eval_mode(agent):
        actions = agent.act(images)
        for image, action in zip(images, actions, strict=True):
            np.testing.assert_allclose(agent.act(image), action, atol=1e-5)


FOLLOWERS = ("agent/observation_normaliser=running", "agent/exploration=held")


@pytest.mark.parametrize("overrides", [(), MIXTURE, ("agent=simba",), ("agent=crossq",), FOLLOWERS])
def test_recorded_acting_is_the_eager_one_to_the_last_bit(overrides: tuple[str, ...]) -> None:
    plain, other, eager, recorded = (make_agent(*overrides, *SMALL) for _ in range(4))
    with torch.no_grad():
        for parameter in other.actor.parameters():
            parameter.add_(0.1)
    set_execution(recorded, "recorded", torch.device("cpu"))
    random = np.random.default_rng(0)

    def compare(one: Any, another: Any) -> None:
        for shape in [(OBS_DIM,), (1, OBS_DIM), (5, OBS_DIM)] * 2:
            obs = random.normal(size=shape).astype(np.float32)
            for sample in (False, True):
                np.testing.assert_array_equal(one.act(obs, sample), another.act(obs, sample))

    for state in (plain, other, plain):  # a recording reads the networks as they are now
        for agent in (eager, recorded):
            agent.load_state_dict(copy.deepcopy(state.state_dict()))
        compare(recorded, eager)
    assert recorded.policy.choose.num_traced == 4
    copied = copy.deepcopy(recorded.policy)
    recorded.load_state_dict(copy.deepcopy(other.state_dict()))  # this does not change the copy
    compare(copied, eager.policy)
    assert copied.choose.num_traced == 4
