"""Every agent with every part that docs/AGENTS_PARTS.md lists.

It trains, recorded as eager, and resumes to the same bytes, or it is refused in one line. `make thorough` runs all.
"""

import copy
from typing import Any

import pytest
import torch
from agents import SMALL, make_agent
from hydra.errors import HydraException
from parts import PAGE, PARTS, overrides, table
from stand_in_graphs import assert_same, buffer_for, learned, train

from run.execution import set_execution
from utils import UserError

CPU = torch.device("cpu")
UPDATES = 8


def built(name: str, part: str) -> Any:
    return make_agent(*SMALL, *overrides(name, part))


def test_the_page_knows_every_agent_and_every_part() -> None:
    names = {path.stem for path in (PAGE.parents[1] / "config/agent").glob("[!_]*.yaml")}
    assert table().keys() == {(name, part) for name in names for part in PARTS}


# test_pairs.py tests the replay buffer's parts, of which an agent alone knows nothing.
OF_AGENTS = [(name, part) for name, part in sorted(table()) if not PARTS[part][0].startswith("replay_buffer")]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "part"), OF_AGENTS)
def test_it_trains_eagerly_and_recorded_and_resumes_or_is_refused(name: str, part: str) -> None:
    if not table()[name, part]:
        with pytest.raises((UserError, HydraException)):
            built(name, part)
        return
    eager, recorded, resumed = (built(name, part) for _ in range(3))
    set_execution(recorded, "recorded", CPU)
    expected, found = (train(agent, "host", UPDATES) for agent in (eager, recorded))
    assert_same(found, expected)
    assert_same(learned(recorded), learned(eager))
    assert recorded.execution._enabled and recorded.execution._recordings
    before = buffer_for(resumed, "host")
    train(resumed, before, UPDATES // 2)
    again = built(name, part)
    again.load_state_dict(copy.deepcopy(resumed.state_dict()))
    buffers = [copy.deepcopy(before) for _ in range(2)]
    assert_same(*(train(agent, buffer, 3) for agent, buffer in zip((again, resumed), buffers, strict=True)))
    assert_same(learned(again), learned(resumed))
