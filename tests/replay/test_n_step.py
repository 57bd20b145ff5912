"""What n-step rows allow beside their definition, with which test_against_lists compares them."""

import composed
import numpy as np
import pytest
import torch

from replay.n_step import NStep
from run.buffers import make_n_step
from utils import UserError


def test_what_waits_goes_on_with_a_devices_tensors() -> None:
    """On the meta device any copy to an array fails; on a GPU such a copy would have to be waited for."""
    first, n_step = NStep(2, 0.9), NStep(2, 0.9)
    obs, column, no_end = np.zeros((3, 2), np.float32), np.zeros((3, 1), np.float32), np.zeros(3, bool)
    first.rows(obs, column, np.zeros(3), obs, no_end, no_end)
    n_step.load_state_dict(first.state_dict())
    sent = [torch.from_numpy(array).to("meta") for array in (obs, column, obs)]
    rows = n_step.rows(*sent[:2], np.zeros(3), sent[2], no_end, no_end)
    assert [rows[place].device.type for place in (0, 1, 3)] == ["meta"] * 3 and len(rows[0]) == 3


def test_a_discount_on_a_schedule_is_refused() -> None:
    linear = "agent.discount={_target_: agent.schedule.Linear, start: 0.9, final: 0.99, steps: 10}"
    with pytest.raises(UserError, match=r"^n_step=3: agent\.discount must be a number, not a schedule; or choose n_st"):
        make_n_step(composed.settings("n_step=3", linear))
    make_n_step(composed.settings(linear))  # n_step=1 allows a schedule
