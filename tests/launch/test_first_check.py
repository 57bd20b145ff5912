"""The first look at a command line finds unknown keys, choices and tasks without importing torch or dm_control."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from runs import ONE_THREAD, ROOT, run_command

# Reads lists of arguments; writes what the first look prints for each, and which slow modules are imported by then.
LOOK = """
import contextlib, io, json, sys
from launch import first_check
said = []
for argv in json.load(sys.stdin):
    written = io.StringIO()
    with contextlib.redirect_stderr(written), contextlib.suppress(SystemExit):
        first_check.look(argv)
    said.append([written.getvalue(), sorted({"torch", "dm_control", "mujoco", "agent", "logger"} & sys.modules.keys())])
json.dump(said, sys.stdout)
"""
PENDULUM = "env=Pendulum-v1"
WRONG = {
    "agent.actor_lrr=1": "agent.actor_lrr: unknown key; did you mean agent.actor_lr or agent.actor_q?",
    "evaluator.nope=1": "evaluator.nope: unknown key",
    "agent=sacc": "agent=sacc: no such choice; there are ",
    "preset=fasst": "preset=fasst: no such choice; there are cartpole, cpu",
    "env=cheetah_rum": "env=cheetah_rum: no such task in the suite or in Gymnasium; did you mean cheetah_run",
    "env=HalfCheeta-v5": "did you mean HalfCheetah-v5",
    "env=Pendulum-v7": "did you mean Pendulum-v1",
    "resume=": "a run's folder goes here",
}
NOT_KNOWN_YET = [  # the first look cannot tell whether these are right
    "agent.batch_size=-1",
    "+agent.critic.hiden_dim=8",
    "env=my_package:Mine-v0",
    "env=phys2d/Pendulum-v0",
    "env=Pendulum",  # means its newest version
    "agent._target_=my_package.Mine",
    "replay_buffer={_target_: my_package.Mine, _partial_: true, anything: 3}",
    "reward_scale={_target_: my_package.schedule}",
    "resume=exp/some/run",
    "--help",
    "--tasks",
]
CHOICES = [
    *(f"agent={path.stem}" for path in (ROOT / "config" / "agent").glob("[!_]*.yaml")),
    *("preset=cpu", "preset=fast", "preset=short", "preset=pendulum", "preset=lunar_lander", "preset=sac_2018"),
]


def said_of(lines: list[list[str]]) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", LOOK], input=json.dumps(lines), cwd=ROOT, env=ONE_THREAD, capture_output=True, text=True
    )
    found = json.loads(ran.stdout)
    assert [imported for _, imported in found] == [[]] * len(lines)
    return [said for said, _ in found]


def test_a_mistake_is_answered_without_torch_and_dm_control() -> None:
    said = dict(zip(WRONG, said_of([[argument] for argument in WRONG]), strict=True))
    assert {argument: one for argument, one in said.items() if WRONG[argument] not in one or one.count("\n") != 1} == {}


def test_what_may_be_right_is_left_to_the_check_of_values() -> None:
    lines = [[argument] for argument in [*NOT_KNOWN_YET, *CHOICES]]
    assert dict(zip([line[0] for line in lines], said_of(lines), strict=True)) == dict.fromkeys(
        [x[0] for x in lines], ""
    )


@pytest.mark.parametrize(("argument", "start"), [(next(iter(WRONG)), next(iter(WRONG.values())))])
def test_the_command_answers_so(argument: str, start: str, tmp_path: Path) -> None:
    ran = run_command(tmp_path, argument)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"train.py: {start}\n")
    imported = subprocess.run(
        [sys.executable, "-X", "importtime", ROOT / "train.py", argument], cwd=tmp_path, capture_output=True, text=True
    ).stderr
    names = {line.rpartition("|")[2].strip() for line in imported.splitlines() if line.startswith("import time:")}
    assert "launch.first_check" in names and not names & {"torch", "dm_control", "mujoco"}
    assert list(tmp_path.iterdir()) == []
