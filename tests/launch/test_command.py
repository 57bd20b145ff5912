"""A mistake is one line and exit code 2, and nothing is created; everything else composes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lines import prepared_folder, sweep_arguments
from runs import ONE_THREAD, ROOT, SILENT, run_command

from launch.request import read
from settings import compose
from utils import UserError


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("env=cheeta_run", "did you mean cheetah_run"),
        ("env=CartPole-v1", "needs a Box"),
        ("env=", "no such task"),
        ("batch_size=3", "did you mean agent.batch_size"),
        ("agent.batchsize=3", "did you mean agent.batch_size"),
        ("+batchh=3", "did you mean agent.batch_size"),
        ("+agent.batchh=3", "did you mean agent.batch_size"),
        ("pre=cpu", "did you mean preset"),
        ("agent.params.batch_size=3", "called agent.batch_size here"),
        ("double_q_critic.params.hidden_dim=3", "called agent.critic.hidden_dim here"),
        ("diag_gaussian_actor.params.log_std_bounds=[-1,1]", "called agent.actor.log_std_bounds here"),
        ("agent.class=x", "called agent._target_ here"),
        ("agent.obs_dim=3", "comes from the environment"),
        ("+agent.critic.action_dim=3", "comes from the environment"),
        ("agent=sca", "there are crossq"),
        ("preset=fsat", "there are cpu"),
        ("preset=[cpu,nope]", "preset=nope"),
        ("agent.critic=5", "a group of keys"),
        ("logger.sinks.csv=3", "a group of keys"),
        ("agent._target_=agent.sac.Nope", "cannot be imported"),
        ("seed=abc", "valid integer"),
        ("seed=-1", "greater than or equal to 0"),
        ("seed=true", "a number goes here"),
        ("num_train_steps=", "valid integer"),
        ("num_train_steps=1.5", "valid integer"),
        ("num_train_steps=0", "greater than 0"),
        ("agent.batch_size=-4", "greater than 0"),
        ("agent.critic.hidden_dim=0", "greater than 0"),
        ("agent.discount=1.5", "less than or equal to 1"),
        ("agent.actor.log_std_bounds=[2,-5]", "lower bound comes first"),
        ("agent.actor.log_std_bounds=[1,2,3]", "at most 2 items"),
        ("agent.actor.log_std_bounds=[-inf,2]", "finite"),
        ("agent.critic_betas=[0.9,1.0]", "less than 1"),
        ("reward_scale=nan", "finite"),
        ("seed=4294967296", "less than 4294967296"),
        ("env=HalfCheetah-v2", "HalfCheetah-v"),
        ("seed_policy=nowhere.pt", "not a policy that can be read"),
        ("agent.init_temperature={_target_: agent.schedule.Linear, start: 1, final: 0, steps: 9}", "temperature=fixed"),
        ("reward_scale={_target_: agent.schedule.Piecewise, points: []}", "at least 1 item"),
        ("reward_scale={_target_: agent.schedule.Linear, start: 1, final: 0, steps: 0}", "greater than 0"),
        ("agent._target_=agent.policy", "cannot be imported"),
        ("agent.actor._partial_=false", "_partial_: true"),
        ("logger.sinks.csv._partial_=false", "_partial_: true"),
        ("evaluator._partial_=false", "_partial_: true"),
        ("agent.temperature=fixed", "agent/temperature=<name>"),
        ("device=cuda:77", "NVIDIA GPU"),
        ("replay_buffer_capacity=10_000_000_000_000", "bytes are needed"),
        ("execution=fast", "should be 'auto', 'eager'"),
        ("execution=captured", "CUDA graphs need a GPU"),
        ("replay_storage=pinned", "choose auto or host"),
        ("agent.exploration=held", "a group of keys goes here"),
        ("agent.critic_weight_decay=-1", "greater than or equal to 0"),
        ("agent.critic_weight_decy=1", "did you mean agent.critic_weight_decay"),
        ("agent/exploration=holds", "no such choice; there are held, none"),
        ("agent/exploration=null", "agent/exploration=null: the name of a choice goes here; there are held, none"),
        ("n_step=0", "greater than 0"),
        ("~agent.critic", "is missing"),
        ("seed", "reads key=value"),
        ("experiment=${nowhere}", "nowhere"),
        ("hydra.run.dir=/dev/null/x", "cannot be created"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_would_be_right(
    argument: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        prepared_folder(argument)
    text = str(caught.value)
    assert message in text
    assert "\n" not in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("agent=crossq agent.critic.network.norm.momentun=0.9", "did you mean agent.critic.network.norm.momentum"),
        ("agent=crossq agent.critic.network.norm.momentum=2", "agent.critic.network.norm.momentum=2"),
        ("agent=crossq agent.actor.network.norm_position=under", "'after' or 'before'"),
        ("agent=tqc agent.critic.head.drop_per_critic=25", "below num_quantiles=25"),
        ("agent=flash_sac agent.critic.head.bounds=[5,-5]", "the lower bound comes first"),
        ("agent=redq agent.num_target_critics=11", "agent.critic.num_critics=10 is the most"),
        ("agent=droq agent.critic.network.dropout=1", "less than 1"),
        ("agent=redq agent.updates_per_step=often", "updates_per_step=often"),
    ],
)
def test_a_mistake_in_a_part_is_one_line_too(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        prepared_folder(*arguments.split())
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("-m agent=glob(y*)", r"agent=glob\(y\*\): no value is left"),
        ("-m seed=interval(1,2)", "INTERVAL_SWEEP"),  # Hydra's own sweeper has a grid
        ("-m env=cheetah_run,nope", "env=nope: no such task"),
        ("seed=1,2 env=cheetah_run,x -m", "env=x: no such task"),
        ("--multirun seed=1,-2", "seed=-2: .*greater than or equal to 0"),
    ],
)
def test_every_swept_value_is_checked_before_anything_is_created(
    sweep: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        prepared_folder(*sweep.split())
    assert list(tmp_path.iterdir()) == []


def test_a_sweeps_folders_are_named_by_what_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    many = [f"agent.{name}_lr=1e-3" for name in ("actor", "critic", "alpha")]
    *_, exclude, folder = sweep_arguments("-m", "env=Pendulum-v1", "seed=1,2", *many)
    fixed = ["env", "agent.actor_lr", "agent.critic_lr", "agent.alpha_lr", "resume"]
    assert exclude == f"hydra.job.config.override_dirname.exclude_keys={fixed}"
    (override,) = compose.parse([folder])
    assert override.key_or_group == "hydra.sweep.dir"
    assert Path(str(override.value())).parents[1] == tmp_path / "exp"  # absolute: a worker may be elsewhere


def test_showing_the_configuration_checks_it_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="there are cpu"):
        read(["--cfg", "job", "preset=foo"])
    assert read(["--cfg", "job"])[1:] == (None, None)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_names_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["env=Pendulum-v1", "experiment=a/b", "seed=7", "save_video=false"]
    folder = prepared_folder(*arguments)
    (run,) = tmp_path.glob("exp/*/*")
    assert folder == run.relative_to(tmp_path)
    assert run.name.split("_", 1)[1] == "sac_a_b_Pendulum-v1_s7"
    assert len(run.name.split("_")[0]) == 6 and len(run.parent.name.split(".")) == 3


def test_a_folder_that_tensorboard_would_not_find_is_one_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = os.fsdecode(b"L\xe4ufer")
    with pytest.raises(UserError, match="its name is not UTF-8, which TensorBoard needs"):
        prepared_folder("env=Pendulum-v1", f"hydra.run.dir={compose.quoted(folder)}")
    assert list(tmp_path.iterdir()) == []


TINY = (
    *("env=Pendulum-v1", "num_train_steps=40", "num_seed_steps=20", "save_video=false", "agent.batch_size=8"),
    *("num_eval_episodes=1", "agent.actor.hidden_dim=32", "agent.critic.hidden_dim=32", "execution=eager"),
)


def test_the_command_itself(tmp_path: Path) -> None:
    right = run_command(tmp_path, *TINY)
    assert right.returncode == 0, right.stderr
    assert right.stderr == ""  # no progress bar where there is no terminal
    assert right.stdout.startswith("| train | E: 1 | S: 40 | R: -")
    assert all(line.startswith(("| train | ", "| eval  | ")) for line in right.stdout.splitlines()), right.stdout
    (folder,) = tmp_path.glob("exp/*/*")
    made = {path.relative_to(folder).parts[0] for path in folder.rglob("*")}
    assert {"train.csv", "eval.csv", "tb", "config.yaml", ".hydra"} <= made


def test_the_command_says_a_mistake_in_one_line(
    tmp_path: Path, command: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert command("agent.batchsize=3") == 2
    said = capfd.readouterr()
    assert said.err.count("\n") == 1 and said.out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_command_sweeps(tmp_path: Path, command: Callable[..., int]) -> None:
    quick = ("log_save_tb=false", "save_figure=false", *SILENT)
    assert command("-m", "seed=1,2", *TINY, "hydra.sweep.dir=sweep", *quick) == 0
    assert sorted(path.parent.name for path in tmp_path.glob("sweep/*/train.csv")) == ["seed-1", "seed-2"]


def test_ctrl_c_closes_the_logs_and_says_so_in_one_line(tmp_path: Path) -> None:
    """As a terminal does, to every process: one evaluates meanwhile."""
    lengths = ("num_train_steps=1000000", "num_seed_steps=1000000", "eval_frequency=500", "eval_in_background=true")
    command = [sys.executable, str(ROOT / "train.py"), *TINY, *lengths]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=tmp_path, text=True, env=ONE_THREAD, start_new_session=True, **streams)
    assert process.stdout is not None
    while not process.stdout.readline().startswith("| eval"):
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)  # which waits until nobody has its streams
    assert process.returncode == 130
    (folder,) = tmp_path.glob("exp/*/*")
    assert error.strip().startswith("interrupted at step ") and str(folder.relative_to(tmp_path)) in error
    assert error.strip().count("\n") == 0
    header, *rows = (folder / "train.csv").read_text().splitlines()
    assert len(rows) >= 1
    assert all(row.count(",") == header.count(",") for row in rows)
