"""Every agent with every part that docs/AGENTS_PARTS.md lists: it trains, recorded as eager, and resumes to the same
bytes, or it is refused in one line. `make thorough` runs all of it."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from agents import SMALL, make_agent
from stand_in_graphs import assert_same, learned, make_buffer, train

from agent.execution.choose import set_execution
from utils import UserError

PAGE = Path(__file__).parents[2] / "docs/AGENTS_PARTS.md"
CPU = torch.device("cpu")
UPDATES = 8


def network(of: str, **keys: str) -> tuple[str, ...]:
    """An actor's or a critic's network of hidden layers with a norm or dropout."""
    node = ", ".join(["_target_: agent.networks.NormedMLP", "_partial_: true", *(f"{k}: {v}" for k, v in keys.items())])
    return (f"agent.{of}.network={{{node}}}",)


def norm(name: str) -> str:
    return f"{{_target_: agent.networks.{name}, _partial_: true}}"


def head(name: str) -> tuple[str, ...]:
    return (f"agent.critic.head={{_target_: agent.networks.{name}, _partial_: true}}",)


PARTS: dict[str, tuple[str, ...]] = {
    "dropout in the critics": network("critic", dropout="0.1"),
    "dropout in the actor": network("actor", dropout="0.1"),
    "LayerNorm": network("critic", norm=norm("LayerNorm")) + network("actor", norm=norm("LayerNorm")),
    "RMSNorm": network("critic", norm=norm("RMSNorm")) + network("actor", norm=norm("RMSNorm")),
    "BatchNorm": network("critic", norm=norm("BatchNorm")),
    "quantile head": head("QuantileHead"),
    "categorical head": head("CategoricalHead"),
    "normalised observations": ("agent/observation_normaliser=running",),
    "normalised rewards": ("agent/reward_normaliser=returns",),
    "held noise": ("agent/exploration=held",),
    "weight decay": ("agent.actor_weight_decay=0.1", "agent.critic_weight_decay=0.1"),
}
SIZES = {"sac_v": ("agent.value.hidden_dim=16",), "sac_2018": ("agent.value.hidden_dim=16",)}


def table() -> dict[tuple[str, str], bool]:
    """What the page says goes together, by agent and part."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    start = next(i for i, line in enumerate(lines) if line.startswith("| part |"))
    agents = re.findall(r"`(\w+)`", lines[start])
    found = {}
    for line in lines[start + 2 :]:
        part, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if len(cells) != len(agents):
            break
        found |= {(agent, part): cell == "yes" for agent, cell in zip(agents, cells, strict=True)}
    return found


def built(name: str, part: str) -> Any:
    return make_agent(f"agent={name}", *SMALL, *SIZES.get(name, ()), *PARTS[part])


def test_the_page_knows_every_agent_and_every_part() -> None:
    names = {path.stem for path in (PAGE.parents[1] / "config/agent").glob("*.yaml")}
    assert table().keys() == {(name, part) for name in names for part in PARTS}


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "part"), sorted(table()))
def test_it_trains_in_every_execution_and_resumes_or_is_refused(name: str, part: str) -> None:
    if not table()[name, part]:
        with pytest.raises(UserError, match=r"^agent\.[\w.]+[=:] ?"):
            built(name, part)
        return
    eager, recorded, resumed = (built(name, part) for _ in range(3))
    set_execution(recorded, "recorded", CPU)
    expected, found = (train(agent, "host", UPDATES) for agent in (eager, recorded))
    assert_same(found, expected)
    assert_same(learned(recorded), learned(eager))
    assert recorded.execution._able and recorded.execution._recordings
    before = make_buffer("host")
    train(resumed, before, UPDATES // 2)
    again = built(name, part)
    again.load_state_dict(copy.deepcopy(resumed.state_dict()))
    buffers = [copy.deepcopy(before) for _ in range(2)]
    assert_same(*(train(agent, buffer, 3) for agent, buffer in zip((again, resumed), buffers, strict=True)))
    assert_same(learned(again), learned(resumed))
