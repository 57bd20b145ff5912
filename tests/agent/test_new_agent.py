"""The agent of docs/NEW_AGENT.md and the part of docs/AGENTS.md, built from the code and the YAML on these pages."""

import re
import sys
import types
from pathlib import Path

import pytest
import torch
from agents import SMALL, make_agent
from parts import PARTS
from stand_in_graphs import FROM_IMAGES, assert_same, learned, train

from run.execution import set_execution

DOCS = Path(__file__).parents[2] / "docs"


def install(page: str, module: str, agent: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Makes a module and an agent's YAML of a page's first code and YAML; returns the overrides that choose it."""
    text = (DOCS / page).read_text(encoding="utf-8")
    code, yaml_text = (re.search(rf"```{language}\n(.*?)```", text, re.DOTALL) for language in ("python", "yaml"))
    assert code and yaml_text and len(yaml_text[1].splitlines()) <= 12
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    exec(code[1], vars(sys.modules[module]))
    (folder / "agent").mkdir()
    (folder / "agent" / f"{agent}.yaml").write_text(yaml_text[1])
    return f"agent={agent}", *SMALL, f"hydra.searchpath=[file://{folder}]"


HEAD_AND_DROPOUT = (*PARTS["categorical head"], *PARTS["dropout in the actor"])


@pytest.mark.parametrize("parts", [(), FROM_IMAGES, HEAD_AND_DROPOUT], ids=["vectors", "images", "parts"])
def test_it_trains_recorded_as_eager(parts: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = install("NEW_AGENT.md", "agent.my_agent", "my_agent", tmp_path, monkeypatch)
    eager, recorded = (make_agent(*overrides, *parts) for _ in range(2))
    set_execution(recorded, "recorded", torch.device("cpu"))
    assert_same(train(recorded, "host", 12), train(eager, "host", 12))
    assert_same(learned(recorded), learned(eager))
    assert recorded.execution._recordings


def test_the_worked_example_of_a_new_part_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent(*install("AGENTS.md", "agent.centre_norm", "centred", tmp_path, monkeypatch))
    assert "train_actor/loss" in train(agent, "host", 1)[0]
    assert "CentreNorm" in [type(layer).__name__ for layer in agent.critic.trunk]
