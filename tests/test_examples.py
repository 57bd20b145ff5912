import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from agents import SMALL, Always, Silent, make_agent, make_batch

ROOT = Path(__file__).parents[1]


def test_the_library_example_learns() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "examples/library.py")]
    output = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    assert float(output.split()[-1]) > -500  # a random policy gets about -1200


def test_the_worked_example_of_a_new_part_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "AGENTS.md").read_text()
    code, settings = (re.search(rf"```{language}\n(.*?)```", page, re.DOTALL) for language in ("python", "yaml"))
    assert code and settings
    module = types.ModuleType("agent.centre_norm")
    exec(code[1], vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "centred.yaml").write_text(settings[1])
    agent = make_agent("agent=centred", *SMALL, f"hydra.searchpath=[file://{tmp_path}]")
    log = Silent()
    agent.update(Always(make_batch(32)), log, 0)
    assert "train_actor/loss" in log.values
    assert "CentreNorm" in [type(layer).__name__ for layer in agent.critic.trunk]
