"""Sweeps in one process: folders, failures, and what resume=auto runs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from probes import SMALL

TINY = ("env=ProbeTimeLimit-v0", *SMALL, "num_train_steps=60", "num_seed_steps=20", "checkpoint_frequency=20")


def test_a_failed_run_does_not_stop_the_others_and_what_is_missing_runs_with_resume_auto(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = ("-m", *TINY, "agent.critic_lr=1e30,1e-3", "seed=1,2", "hydra.sweep.dir=sw")
    assert command(*sweep) == 3
    out, err = capsys.readouterr()
    assert "2 of 4: agent.critic_lr-0.001__seed-2, " in out
    assert "train.py: 2 of 4 runs did not finish:\n  agent.critic_lr-1e+30__seed-1: " in err
    assert "resume=auto hydra.sweep.dir=sw" in err
    names = [f"agent.critic_lr-{rate}__seed-{seed}" for rate in ("0.001", "1e+30") for seed in (1, 2)]
    assert sorted(path.name for path in (tmp_path / "sw").iterdir() if path.is_dir()) == names
    assert "is nan" in json.loads((tmp_path / "sw" / names[2] / "failed.json").read_text())["reason"]
    assert command(*sweep) == 2 and "there are runs in it" in capsys.readouterr().err

    (tmp_path / "sw" / names[0] / "finished.json").unlink()
    before = (tmp_path / "sw" / names[1] / "train.csv").read_bytes()
    assert command(*sweep, "resume=auto") == 3
    out, err = capsys.readouterr()
    assert out.count("nothing is left to do") == 1 and out.count("Continuing from") == 3
    assert "2 of 4 runs did not finish" in err
    assert (tmp_path / "sw" / names[1] / "train.csv").read_bytes() == before


def test_a_run_in_a_folder_that_is_named_goes_on_or_begins(command: Callable[..., int], tmp_path: Path) -> None:
    choices = ("preset=cpu", "agent=sac", "agent/temperature=learned_log")
    run = (*choices, *TINY, "agent.actor_betas=[0.8,0.9]", "hydra.run.dir=run")
    assert command(*run, "resume=auto") == 0
    assert command(*run) == 2, "there is a run already"
    assert command(*run, "resume=auto", "num_train_steps=100") == 0
    assert json.loads((tmp_path / "run/finished.json").read_text())["step"] == 100
    assert command("resume=run", *TINY[:1], "agent.actor_betas=[0.8,0.9]", "device=auto", "num_train_steps=120") == 0
    assert command("resume=run", "seed=7") == 2, "it would change the run"
    assert command(*run, "resume=auto", "agent.critic_lr=0.5") == 2
    assert json.loads((tmp_path / "run/finished.json").read_text())["step"] == 120
