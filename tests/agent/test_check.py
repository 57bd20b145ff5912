"""`python -m agent.check`: it finds nothing in this project's agents, and names an author's mistakes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from parts import AGENTS
from torch import nn

from agent import check
from agent.check import read_node
from agent.sac import SACAgent


def read_small(name: str) -> dict[str, Any]:
    node = read_node(name)
    for part in ("actor", "critic"):
        node[part]["hidden_dim"] = 8
    if node["encoder"]:
        node["encoder"] |= {"channels": 4, "strides": [2, 2], "feature_dim": 8}
    return node


@pytest.mark.parametrize("name", AGENTS)
def test_no_mistake_is_found_in_our_agents(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "read_node", read_small)
    assert check.main(name) == 0, capsys.readouterr().out


def find(agent_class: type[SACAgent]) -> str:
    node = read_small("sac")

    def make(seed: int) -> Any:
        agent = check.build(node, seed)
        agent.__class__ = agent_class
        if hasattr(agent, "begin"):
            agent.begin()
        return agent

    return "\n".join(check.find_mistakes(make))


class Untrained(SACAgent):
    def begin(self) -> None:
        self.extra = nn.Linear(3, 3)


class Global(SACAgent):
    def update_step(self, batch: Any, noise: Any) -> Any:
        torch.randn(3)
        return super().update_step(batch, noise)


class InPlace(SACAgent):
    def update_step(self, batch: Any, noise: Any) -> Any:
        batch.reward.add_(1.0)
        return super().update_step(batch, noise)


class Matrix(SACAgent):
    def update_step(self, batch: Any, noise: Any) -> Any:
        metrics, outputs = super().update_step(batch, noise)
        weight = torch.ones(len(batch.reward)) if batch.weight is None else batch.weight
        return metrics | {"train/weighted": (weight * batch.reward).mean()}, outputs


class Frozen(SACAgent):
    counted = 0

    def update_step(self, batch: Any, noise: Any) -> Any:
        self.counted += 1
        return super().update_step(batch._replace(reward=batch.reward * self.counted), noise)


@pytest.mark.parametrize(
    ("agent_class", "words"),
    [
        (Untrained, "extra"),
        (Global, "draws from a global generator"),
        (InPlace, "batch"),
        (Matrix, "(B,) beside (B, 1)"),
        (Frozen, "a recording freezes"),
    ],
)
def test_a_mistake_is_one_line(agent_class: type[SACAgent], words: str) -> None:
    assert words in find(agent_class)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/mine.yaml").write_text("defaults: [sac, _self_]\nname: mine\n")
    assert read_node(str(tmp_path / "agent/mine.yaml"))["_target_"] == "agent.sac.SACAgent"
