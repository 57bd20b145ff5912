"""n-step rows compared with their definition, across episodes, environments and restarts."""

from typing import Any

import composed
import numpy as np
import pytest
import torch

from replay.n_step import NStep
from run.buffers import make_n_step
from utils import UserError

GAMMA, NUM_ENVS, STEPS = 0.9, 3, 90
Step = tuple[np.ndarray, ...]


def make_steps() -> list[Step]:
    """Steps of three environments: some episodes terminate, a limit ends others, and the last are unfinished."""
    rng, shape = np.random.default_rng(5), (STEPS, NUM_ENVS)
    obs, next_obs = rng.normal(size=(2, *shape, 2)).astype(np.float32)
    actions = rng.uniform(-1, 1, (*shape, 1)).astype(np.float32)
    done = rng.random(shape) < 0.2
    terminated = done & (rng.random(shape) < 0.5)
    done[10:12] = True  # so that there are episodes of one step
    terminated[10:12] = [[True, False, True], [False, False, True]]
    return list(zip(obs, actions, rng.normal(size=shape), next_obs, done, terminated, strict=True))


def test_what_waits_survives_a_restart_and_a_reused_array() -> None:
    straight, first = NStep(5, GAMMA), NStep(5, GAMMA)
    n_step = first
    for t, step in enumerate(make_steps()):
        if t == 47:
            n_step = NStep(5, GAMMA)
            n_step.load_state_dict(first.state_dict())
            assert n_step.num_pending == first.num_pending > 0
        reused: tuple[Any, ...] = tuple(np.array(part) for part in step)
        completed = n_step.rows(*reused)
        for part in reused[:3]:  # the new rows may still use the others
            part.fill(0)
        assert completed[0].dtype == completed[1].dtype == np.float32
        for ours, theirs in zip(completed, straight.rows(*step), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_what_waits_goes_on_with_a_devices_tensors() -> None:
    """On the meta device any copy to an array fails; on a GPU such a copy would have to be waited for."""
    first, n_step = NStep(2, GAMMA), NStep(2, GAMMA)
    obs, actions, rewards, next_obs, done, terminated = make_steps()[0]
    first.rows(obs, actions, rewards, next_obs, done & False, terminated & False)
    n_step.load_state_dict(first.state_dict())
    sent = [torch.from_numpy(column).to("meta") for column in (obs, actions, next_obs)]
    rows = n_step.rows(sent[0], sent[1], rewards, sent[2], done & False, terminated & False)
    assert [rows[place].device.type for place in (0, 1, 3)] == ["meta"] * 3 and len(rows[0]) == NUM_ENVS


def test_a_discount_on_a_schedule_is_refused() -> None:
    linear = "agent.discount={_target_: agent.schedule.Linear, start: 0.9, final: 0.99, steps: 10}"
    with pytest.raises(UserError, match=r"^n_step=3: agent\.discount must be a number, not a schedule; or choose n_st"):
        make_n_step(composed.settings("n_step=3", linear))
    make_n_step(composed.settings(linear))  # n_step=1 allows a schedule
