"""A mistake on the command line is one line that names the key and what would be right; nothing is created."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import ROOT

WRONG = [  # the arguments, and words of the line
    ("agent.batchsize=3", "agent.batchsize: unknown key; did you mean agent.batch_size?"),
    ("agent.critic.hiden_dim=3", "did you mean agent.critic.hidden_dim or"),
    ("num_trian_steps=9", "did you mean num_train_steps?"),
    ("+foo=1", "foo=1: unknown key"),
    ("~foo", "foo: unknown key"),
    ("agent.params.actor_lr=1", "did you mean agent.actor_lr?"),
    ("gamma=0.9", "gamma: unknown key; `python train.py --help` lists them"),
    ("agent=sacc", "agent=sacc: no such choice; there are crossq, droq,"),
    ("preset=[cpu,nope]", "preset=nope: no such choice"),
    ("agent/temperature=nope", "agent/temperature=nope: no such choice"),
    ("hydra/launcher=nope", "hydra/launcher=nope: no such choice"),
    ("env=cheetah_rum", "env=cheetah_rum: no such task in the suite or in Gymnasium; did you mean cheetah_run"),
    ("env=Pendulum-v99", "env=Pendulum-v99"),
    ("seed=x", "seed=x: must be a valid integer"),
    ("seed=-1", "seed=-1: must be greater than or equal to 0"),
    ("num_train_steps=null", "num_train_steps=null: must be"),
    ("env_kwargs.g=9", "env_kwargs.g: unknown key; a plus adds it: +env_kwargs.g=<value>"),
    ("+info_keys.a=mean", "info_keys={'is_success': 'last', 'a': 'mean'}: must be"),
    ("agent.critic.hidden_dim=-1", "agent.critic.hidden_dim=-1: must be greater than 0"),
    ("agent.critic_lr=abc", "agent.critic_lr=abc: must be a valid number"),
    ("agent.discount=nan", "agent.discount=nan: must be"),
    ("agent._target_=agent.nope.X", "agent._target_=agent.nope.X: cannot be imported"),
    ("env_wrappers=[{_target_: gymnasium.wrappers.Nope}]", "cannot be imported"),
    ("env_wrappers=[{_target_: gymnasium.wrappers.TimeLimit, steps: 3}]", "steps=3: unknown key"),
    ("seed=1,2", "To sweep over it, add --multirun"),
    ("env=${nope}", "env: Interpolation key 'nope' not found"),
    ("nonsense", "nonsense"),
    ("resume=auto", "resume=auto: name the folder to look into, hydra.run.dir=<folder>"),
    ("resume=nowhere", "nowhere: no run's folder"),
    ("device=cuda:99", "device=cuda:99"),
    ("seed_policy=nowhere.pt", "nowhere.pt"),
    ("-m seed=x,1", "seed=x: must be a valid integer"),
    ("-m agent.nope=1 seed=1,2", "agent.nope: unknown key"),
    ("-m preset=tune agent.critic_lr=1e-3 nope=1", "nope: unknown key"),
]


@pytest.mark.parametrize(("line", "words"), WRONG)
def test_a_mistake_is_one_line(
    line: str, words: str, command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [line] if "{" in line else line.split()
    named = () if "env=" in line or "resume=" in line else ("env=Pendulum-v1",)
    assert command(*arguments, *named) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("train.py: ") and printed.count("\n") == 1 and words in printed
    assert list(tmp_path.iterdir()) == []


def test_help_and_tasks(command: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    printed = subprocess.check_output([sys.executable, "train.py", "--help"], cwd=ROOT, text=True)
    assert "preset: cartpole, cpu," in printed and "num_train_steps: 1000000" in printed
    assert command("--tasks") == 0
    printed = capsys.readouterr().out
    assert "cheetah_run" in printed and "Pendulum-v1" in printed
