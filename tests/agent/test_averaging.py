"""The actor's average: its arithmetic, when it acts, and that it does not change training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents import OBS_DIM, SMALL, Always, Silent, make_agent, make_batch
from same_run import same

from agent.networks.mlp import Linear
from agent.policy import load_policy
from utils import eval_mode

SHARE = 0.25
AVERAGED = f"agent.actor_average_share={SHARE}"
CROSSQ = ("agent=crossq", *SMALL, "agent.actor_update_frequency=2")
REDQ = ("agent=redq", *SMALL, "agent.actor_update_frequency=2")  # its actor and critics step together
UNIT = tuple(f"agent.{net}.network.unit_length=weights" for net in ("actor", "critic"))
OBS = np.random.default_rng(0).normal(size=(5, OBS_DIM)).astype(np.float32)


def trained(agent: Any, updates: int) -> Any:
    buffer, log = Always(make_batch(32)), Silent()
    for step in range(updates):
        agent.update(buffer, log, step)
    return agent


def float64(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().double().clone() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("overrides", [CROSSQ, REDQ])
def test_it_is_the_plain_mean_at_first_and_then_moves_by_its_share(overrides: tuple[str, ...]) -> None:
    agent = make_agent(*overrides, AVERAGED)
    buffer, log = Always(make_batch(32)), Silent()
    of_updates, expected = [], {}
    for step in range(18):
        agent.update(buffer, log, step)
        if step % 2 == 1:  # the updates that change the actor
            of_updates.append(float64(agent.actor))
    for name in of_updates[0]:
        average = torch.stack([weights[name] for weights in of_updates[:4]]).mean(0)
        for weights in of_updates[4:]:
            average = average + SHARE * (weights[name] - average)
        expected[name] = average
    assert any("running_mean" in name for name in expected) == (overrides is CROSSQ)
    for name, tensor in float64(agent.actor_average.network).items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6)
        assert not torch.equal(tensor, of_updates[-1][name])


def test_weights_of_unit_length_have_an_average_of_unit_length() -> None:
    agent = trained(make_agent(*CROSSQ, *UNIT, AVERAGED, "agent.actor_lr=0.3"), 8)  # weights move far apart
    weights = [layer.weight for layer in agent.actor_average.network.modules() if isinstance(layer, Linear)]
    assert weights
    for weight in weights:  # (in, out)
        torch.testing.assert_close(weight.norm(dim=0), torch.ones(weight.shape[1]))


def test_training_has_the_same_bytes_with_it() -> None:
    plain, averaged = (trained(make_agent(*CROSSQ, *more), 13) for more in ((), (AVERAGED,)))
    state = averaged.state_dict()
    assert state.pop("actor_average")
    assert same(state, plain.state_dict())
    assert np.array_equal(averaged.act(OBS, sample=True), plain.act(OBS, sample=True))
    assert np.array_equal(averaged.act(OBS), plain.act(OBS))
    with eval_mode(plain), eval_mode(averaged):
        assert not np.array_equal(averaged.act(OBS), plain.act(OBS))


def test_what_is_evaluated_is_what_is_saved(tmp_path: Path) -> None:
    agent = trained(make_agent(*CROSSQ, AVERAGED), 9)
    agent.save_policy(tmp_path / "policy.pt")
    expected = agent.actor_average.network(torch.from_numpy(OBS)).greedy(None).detach().numpy()
    with eval_mode(agent):
        np.testing.assert_array_equal(agent.act(OBS), expected)
    np.testing.assert_array_equal(load_policy(tmp_path / "policy.pt").act(OBS), expected)
    np.testing.assert_array_equal(agent.policy.with_weights(agent.policy.weights()).act(OBS), expected)
