"""The first look at a command line: what it says, it says without torch and dm_control."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from runs import ONE_THREAD, ROOT, run_command

# Reads lists of arguments; writes what the first look says of each, and what it has imported by then.
LOOK = """
import contextlib, io, json, sys
from launch import early
said = []
for argv in json.load(sys.stdin):
    written = io.StringIO()
    with contextlib.redirect_stderr(written), contextlib.suppress(SystemExit):
        early.look(argv)
    said.append([written.getvalue(), sorted({"torch", "dm_control", "mujoco", "agent", "logger"} & sys.modules.keys())])
json.dump(said, sys.stdout)
"""
PENDULUM = "env=Pendulum-v1"
WRONG = {
    "agent.actor_lrr=1": "agent.actor_lrr: unknown key; did you mean agent.actor_lr or agent.actor_q?",
    "+agent.critic.hiden_dim=8": "agent.critic.hiden_dim=8: unknown key; did you mean agent.critic.hidden_dim or",
    "agent.batch_size=-1": "agent.batch_size=-1: it should be greater than 0",
    "agent.critic_lr=abc": "agent.critic_lr=abc: it should be a valid number",
    "num_envs=x": "num_envs=x: it should be a valid integer",
    "agent.critic.init=xavier": "agent.critic.init=xavier: it should be 'orthogonal'",
    "evaluator.nope=1": "evaluator.nope: unknown key",
    "agent.discount={_target_: agent.schedule.Linear, start: 0.9, final: 3, steps: 9}": "at step 9",
    "agent.critic.head={_target_: agent.schedule.Linear, _partial_: true, start: 1, final: 2, steps: 3}": "a head goes",
    "agent=sacc": "agent=sacc: no such choice; there are crossq",
    "preset=fasst": "preset=fasst: no such choice; there are cpu",
    "env=cheetah_rum": "env=cheetah_rum: no such task in the suite or in Gymnasium; did you mean cheetah_run",
    "env=HalfCheeta-v5": "did you mean HalfCheetah-v5",
    "env=Pendulum-v7": "did you mean Pendulum-v1",
    "resume=": "a run's folder goes here",
}
NOT_KNOWN_YET = [  # whether they are right
    "env=my_package:Mine-v0",
    "env=phys2d/Pendulum-v0",
    "env=Pendulum",  # its newest version
    "agent._target_=my_package.Mine",
    "replay_buffer={_target_: my_package.Mine, _partial_: true, anything: 3}",
    "reward_scale={_target_: my_package.schedule}",
    "resume=exp/some/run",
    "--help",
    "--tasks",
]
CHOICES = [
    *(f"agent={path.stem}" for path in (ROOT / "config" / "agent").glob("*.yaml")),
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


@pytest.mark.thorough
def test_what_may_be_right_is_left_to_the_whole_check() -> None:
    lines = [[argument] for argument in [*NOT_KNOWN_YET, *CHOICES]]
    assert dict(zip([line[0] for line in lines], said_of(lines), strict=True)) == dict.fromkeys(
        [x[0] for x in lines], ""
    )


@pytest.mark.thorough
def test_every_class_that_the_configuration_names_can_be_looked_at() -> None:
    """A key that does not exist is found in each of its nodes: none is left out because of a stand-in."""
    nodes = []
    for path in sorted((ROOT / "config" / "agent").glob("*.yaml")):
        for name, node in yaml.safe_load(path.read_text()).items():
            if isinstance(node, dict) and "_target_" in node:
                nodes.append([f"agent={path.stem}", f"+agent.{name}.nope=1"])
        nodes.append([f"agent={path.stem}", "+agent.nope=1"])
    assert len(nodes) > 20
    said = said_of(nodes)
    assert [node for node, one in zip(nodes, said, strict=True) if "nope=1: unknown key" not in one] == []


@pytest.mark.parametrize(("argument", "start"), [(next(iter(WRONG)), next(iter(WRONG.values())))])
def test_the_command_answers_so(argument: str, start: str, tmp_path: Path) -> None:
    ran = run_command(tmp_path, argument)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"train.py: {start}\n")
    imported = subprocess.run(
        [sys.executable, "-X", "importtime", ROOT / "train.py", argument], cwd=tmp_path, capture_output=True, text=True
    ).stderr
    names = {line.rpartition("|")[2].strip() for line in imported.splitlines() if line.startswith("import time:")}
    assert "launch.early" in names and not names & {"torch", "dm_control", "mujoco"}
    assert list(tmp_path.iterdir()) == []
