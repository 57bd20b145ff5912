"""With `resume=auto` one command both starts and continues a run, for every agent, so a job can be queued again."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import ROOT, SILENT

from run.saving import folder as run_folder

AGENTS = sorted(path.stem for path in (ROOT / "config/agent").glob("[!_]*.yaml"))
SHORT = (
    *("env=Pendulum-v1", "num_seed_steps=40", "num_eval_episodes=1", "execution=eager", "device=cpu"),
    *("save_video=false", "save_figure=false", "log_save_tb=false", "agent.batch_size=8", "replay_buffer_capacity=100"),
    *("agent.critic.hidden_dim=8", "agent.actor.hidden_dim=8", "resume=auto", "hydra.run.dir=run", *SILENT),
)


def examples_of_schedules() -> list[str]:
    page = (ROOT / "docs" / "SYSTEMS.md").read_text()
    return re.findall(r"python train.py '(.*_target_.*)'", page)


def test_the_page_has_examples() -> None:
    assert len(examples_of_schedules()) >= 2


@pytest.mark.thorough
@pytest.mark.parametrize("overrides", [(f"agent={name}",) for name in AGENTS] + [(e,) for e in examples_of_schedules()])
def test_the_same_command_goes_on(overrides: tuple[str, ...], tmp_path: Path, command: Callable[..., int]) -> None:
    own = ("env=CartPole-v1",) if overrides == ("agent=sac_discrete",) else ()
    assert command(*overrides, *SHORT, *own, "num_train_steps=43") == 0
    assert command(*overrides, *SHORT, *own, "num_train_steps=46") == 0
    finished = run_folder.finished(tmp_path / "run")
    assert finished is not None and finished[0] == 46


def test_another_number_of_updates_than_the_agent_began_with_is_refused(
    command: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert command("agent=redq", *SHORT, "num_train_steps=41") == 0
    assert command("agent=redq", "agent.updates_per_step=3", *SHORT, "num_train_steps=46") == 2
    assert "updates_per_step=3.0 would change the run, which has updates_per_step=20.0" in capfd.readouterr().err
