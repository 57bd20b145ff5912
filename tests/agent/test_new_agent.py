"""The agent of docs/NEW_AGENT.md, built from the code and the YAML on that page."""

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

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "NEW_AGENT.md").read_text(encoding="utf-8")


@pytest.fixture
def overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    code, yaml_text = (re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) for language in ("python", "yaml"))
    assert code and yaml_text
    module = types.ModuleType("agent.my_agent")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(code[1], vars(module))
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "my_agent.yaml").write_text(yaml_text[1])
    assert len(yaml_text[1].splitlines()) <= 12
    return "agent=my_agent", *SMALL, f"hydra.searchpath=[file://{tmp_path}]"


HEAD_AND_DROPOUT = (*PARTS["categorical head"], *PARTS["dropout in the actor"])


@pytest.mark.parametrize("parts", [(), FROM_IMAGES, HEAD_AND_DROPOUT], ids=["vectors", "images", "parts"])
def test_it_trains_recorded_as_eager(overrides: tuple[str, ...], parts: tuple[str, ...]) -> None:
    eager, recorded = (make_agent(*overrides, *parts) for _ in range(2))
    set_execution(recorded, "recorded", torch.device("cpu"))
    assert_same(train(recorded, "host", 12), train(eager, "host", 12))
    assert_same(learned(recorded), learned(eager))
    assert recorded.execution._recordings
