"""What a beginner asks for first: `--help` and `--tasks`."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from runs import ROOT


def test_help_has_the_commands_and_every_key_with_its_explanation(
    command: Callable[..., int], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command("--help") == 0
    said = capfd.readouterr()
    for key in yaml.safe_load((ROOT / "config/train.yaml").read_text()):
        assert key == "defaults" or f"\n  {key}" in said.out, key
    for words in ("resume=<folder>", "resume=auto", "--tasks", "steps between evaluations", "\nEvaluation\n"):
        assert words in said.out
    for words in ("agent.critic.num_critics", "agent/temperature", "\n  td3 ", "\n  tune_lunar_lander"):
        assert words in said.out
    assert max(map(len, said.out.splitlines())) <= 120 and said.err == "" and not list(tmp_path.iterdir())


def test_the_tasks_are_listed(command: Callable[..., int], capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command("--tasks") == 0
    words = capfd.readouterr().out.replace(",", " ").split()
    assert {"cheetah_run", "ball_in_cup_catch", "CartPole-v1", "Pendulum-v1", "HalfCheetah-v5"} <= set(words)
    assert "HalfCheetah-v4" not in words and not list(tmp_path.iterdir())
