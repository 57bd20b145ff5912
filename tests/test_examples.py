import contextlib
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from agents import SMALL, Always, Silent, make_agent, make_batch
from composed import settings

from settings.compose import searching
from utils import UserError

ROOT = Path(__file__).parents[1]


@pytest.mark.thorough
def test_the_library_example_learns() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "examples/library.py")]
    output = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    assert float(output.split()[-1]) > -500  # a random policy gets about -1200


def test_the_worked_example_of_a_new_part_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "AGENTS.md").read_text()
    code, yaml_text = (re.search(rf"```{language}\n(.*?)```", page, re.DOTALL) for language in ("python", "yaml"))
    assert code and yaml_text
    module = types.ModuleType("agent.centre_norm")
    exec(code[1], vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "centred.yaml").write_text(yaml_text[1])
    agent = make_agent("agent=centred", *SMALL, searching([tmp_path]))
    log = Silent()
    agent.update(Always(make_batch(32)), log, 0)
    assert "train_actor/loss" in log.values
    assert "CentreNorm" in [type(layer).__name__ for layer in agent.critic.trunk]


def test_make_train_knows_which_agents_fit_preset_cpu() -> None:
    line = re.search(r"^FITS_CPU := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert line
    fits = []
    for agent in sorted(path.stem for path in (ROOT / "config/agent").glob("*.yaml")):
        with contextlib.suppress(UserError):
            settings(f"agent={agent}", "preset=cpu")
            fits.append(agent)
        assert settings(f"agent={agent}", "preset=short").num_threads == 1
    assert sorted(line[1].split()) == fits


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        ("", "preset=fast"),
        ("env=walker_walk resume=auto", "preset=fast"),
        ("agent=sac", "preset=cpu"),
        ("agent=td3", "preset=short"),
        ("agent=drq env=cartpole_swingup", "preset=pixels_cpu"),
        ("agent=mine --config-dir=x", "preset=short"),
        ("preset=cpu", ""),
        ("preset=pendulum", ""),
        ("preset=dmc_benchmark seed=1", ""),
        ("resume=exp/day/run", ""),
    ],
)
@pytest.mark.parametrize("has_gpu", [0, 1])
def test_make_train_adds_what_two_cores_can_learn(arguments: str, added: str, has_gpu: int) -> None:
    command = ["make", "-n", "train", f"ARGS={arguments}", f"HAS_GPU={has_gpu}"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    output = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=alone, check=True).stdout
    words = output.splitlines()[-1].split("train.py", 1)[1].split()
    assert words == [*(word for word in added.split() if not (has_gpu and "preset" in word)), *arguments.split()]
