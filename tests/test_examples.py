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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "preset=fast"),
        ("env=walker_walk resume=auto", "preset=fast env=walker_walk resume=auto"),
        ("preset=cpu", "preset=cpu"),
        ("resume=exp/day/run", "resume=exp/day/run"),
    ],
)
@pytest.mark.parametrize("has_gpu", [0, 1])
def test_make_train_adds_the_preset_for_two_cores(arguments: str, expected: str, has_gpu: int) -> None:
    command = ["make", "-n", "train", f"ARGS={arguments}", f"HAS_GPU={has_gpu}"]
    output = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    words = output.splitlines()[-1].split("train.py", 1)[1].split()
    assert words == ["env=cheetah_run", *(arguments if has_gpu else expected).split()]
