"""The command: a mistake gives one line and exit code 2 and creates nothing; a right line trains or sweeps."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lines import prepared_folder, sweep_arguments
from omegaconf import DictConfig
from runs import ONE_THREAD, ROOT, SILENT, run_command

from launch import job, preflight, request
from launch.request import output_folder, read
from settings import compose, resolvers
from utils import UserError


def assert_refused(message: str, *arguments: str) -> None:
    """Asserts that the line is refused in one line with this message, and the empty working folder stays empty."""
    with pytest.raises(UserError) as caught:
        prepared_folder(*arguments)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("env=cheeta_run", "did you mean cheetah_run"),
        ("env=CartPole-v1", "actions are discrete, and agent=sac is for continuous ones; choose agent=sac_discrete"),
        ("agent=sac_discrete", "actions are continuous, and agent=sac_discrete is for discrete ones; choose agent=sac"),
        ("env=", "no such task"),
        ("agent.params.batch_size=3", "called agent.batch_size here"),
        ("double_q_critic.params.hidden_dim=3", "called agent.critic.hidden_dim here"),
        ("diag_gaussian_actor.params.log_std_bounds=[-1,1]", "called agent.actor.log_std_bounds here"),
        ("agent.class=x", "called agent._target_ here"),
        ("env=HalfCheetah-v2", "HalfCheetah-v"),
        (
            "seed_policy=nowhere.pt",
            "seed_policy=nowhere.pt: not a policy that can be read (FileNotFoundError); uniform, ",
        ),
        ("agent.init_temperature={_target_: agent.schedule.Linear, start: 1, final: 0, steps: 9}", "temperature=fixed"),
        ("device=cuda:77", "NVIDIA GPU"),
        ("execution=captured", "CUDA graphs need a GPU"),
        ("hydra.run.dir=/dev/null/x", "cannot be created"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_would_be_right(
    argument: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(message, argument)


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
        ("agent=td3 agent/temperature=fixed", "agent/temperature: what was chosen has no such part; leave it out"),
    ],
)
def test_a_mistake_in_a_part_is_one_line_too(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(message, *arguments.split())


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("-m agent=glob(y*)", r"agent=glob\(y\*\): no value is left"),
        ("-m seed=interval(1,2)", "INTERVAL_SWEEP"),  # Hydra's own sweeper takes only a grid
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
    assert Path(str(override.value())).parents[1] == tmp_path / "exp"  # absolute: a worker may start in another folder


@pytest.mark.parametrize(
    ("sweeps", "named"),
    [
        (["seed=3", "seed=1,2"], ["seed-3", "seed-1", "seed-2"]),
        (["", "seed=2"], ["seed-1", "seed-2"]),
        (["agent.discount=0.9,0.8 seed=1", "seed=2 agent.discount=0.9"], 3 * ["agent.discount-"]),
        (["preset=dmc_benchmark", "seed=6"], [f"seed-{seed}" for seed in range(1, 7)]),
    ],
)
def test_each_run_of_a_sweep_has_a_folder_that_later_ones_find_again(
    sweeps: list[str], named: list[str], tmp_path: Path, command: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: set[str] = set()
    monkeypatch.setattr(preflight, "check_runs", lambda runs: None)
    monkeypatch.setattr(job, "train", lambda cfg, folder, **how: made.add(str(folder.relative_to(tmp_path / "sw"))))
    for sweep in sweeps:
        resume = () if sweep == sweeps[0] else ("resume=auto",)
        assert command("-m", "env=Pendulum-v1", *sweep.split(), "hydra.sweep.dir=sw", *resume) == 0
    assert len(made) == len(named)
    assert all(name.startswith(start) for name, start in zip(sorted(made), sorted(named), strict=True))


def test_a_study_is_no_sweeps_folder(tmp_path: Path, command: Callable[..., int], capsys: Any) -> None:
    (tmp_path / "sw").mkdir()
    (tmp_path / "sw/tuning.yaml").touch()
    assert command("-m", *TINY, "seed=1,2", "hydra.sweep.dir=sw", "resume=auto", *SILENT) == 2
    assert "hydra.sweep.dir=sw: there is a study in it" in capsys.readouterr().err


def test_a_home_folder_and_a_repeated_key_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    request = read(["-m", "seed=1,2", "hydra.sweep.dir=~/sw", "resume=auto", "resume=auto"])
    assert request.runs is not None
    assert output_folder(request.runs.config, "hydra.sweep.dir") == tmp_path / "sw"
    monkeypatch.setenv("HOME", str(ROOT))
    with pytest.raises(UserError, match=r"^hydra.sweep.dir=~: that is this project's own folder"):
        output_folder(compose.compose_config("train", ["hydra.sweep.dir='~'"]), "hydra.sweep.dir")


def test_a_long_name_is_cut_and_stays_distinct() -> None:
    names = [resolvers.slug(f"{'ä' * 300}{number}") for number in (1, 2)]
    assert len(set(names)) == 2 and all(len(name.encode()) <= 200 and name.startswith("ääää") for name in names)


def test_showing_the_configuration_checks_it_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="there are cartpole, cpu"):
        read(["--cfg", "job", "preset=foo"])
    assert read(["--cfg", "job"])[1:] == (None, None)
    assert list(tmp_path.iterdir()) == []


def test_showing_the_configuration_does_not_continue_a_run(tmp_path: Path) -> None:
    (tmp_path / "checkpoints/step_10").mkdir(parents=True)
    auto = ["resume=auto", f"hydra.run.dir={tmp_path}"]
    continued = read(auto).continued
    assert continued is not None and continued.folder == tmp_path
    assert read(["--cfg", "job", *auto])[1:] == (None, None)


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ("seed=3", 1),
        ("resume=auto hydra.run.dir=new", 1),
        ("-m seed=1,2", 2),
        ("-m seed=1,2 env=cheetah_run,hopper_hop", 3),
    ],
)
def test_no_configuration_is_composed_twice(arguments: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    composed: list[list[str]] = []

    def compose_config(name: str, overrides: list[str]) -> DictConfig:
        composed.append(overrides)
        return compose.compose_config(name, overrides)

    monkeypatch.setattr(request, "compose_config", compose_config)
    read(arguments.split())
    assert len(composed) == number


def test_the_folder_names_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["env=Pendulum-v1", "experiment=a/b", "seed=7", "save_video=false"]
    folder = prepared_folder(*arguments)
    (run,) = tmp_path.glob("exp/*/*")
    assert folder == run.relative_to(tmp_path)
    assert run.name.split("_", 1)[1] == "sac_a_b_Pendulum-v1_s7"
    assert len(run.name.split("_")[0]) == 6 and len(run.parent.name.split(".")) == 3


@pytest.mark.parametrize(
    ("given", "part"),
    [((), ""), (("experiment=test_exp",), "_test_exp"), (("experiment=b",), "_b"), (("experiment=",), "")],
)
def test_the_default_label_is_in_a_folders_name_only_if_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    single = prepared_folder("env=Pendulum-v1", "save_video=false", *given)
    assert single.name.split("_", 1)[1] == f"sac{part}_Pendulum-v1_s1"
    (override,) = compose.parse([sweep_arguments("-m", "env=Pendulum-v1", "save_video=false", "seed=1,2", *given)[-1]])
    assert Path(str(override.value())).name.split("_", 1)[1] == f"sweep{part}"


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
    (folder,) = (path.relative_to(tmp_path) for path in tmp_path.glob("exp/*/*"))
    first, _, train, evaluated, *last = right.stdout.splitlines()
    assert first == f"Folder: {folder}"
    assert train.split()[:6] == ["|", "train", "|", "1", "|", "40"]
    assert evaluated.split()[:6] == ["|", "eval", "|", "1", "|", "40"]
    mean_return = re.search(r"Finished at step 40: return (\S+); best \1, at step 40$", last[0])
    assert mean_return and float(evaluated.split()[7]) == pytest.approx(float(mean_return[1]), abs=0.06)
    assert last[1:] == [
        f"Folder:   {folder}",
        f"Watch:    python {ROOT / 'evaluate.py'} {folder} --view",
        f"Evaluate: python {ROOT / 'evaluate.py'} {folder}",
    ]
    folder = tmp_path / folder
    made = {path.relative_to(folder).parts[0] for path in folder.rglob("*")}
    assert {"train.csv", "eval.csv", "tb", "config.yaml", ".hydra"} <= made


def test_the_command_says_a_mistake_in_one_line(
    tmp_path: Path, command: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert command("agent.batchsize=3") == 2
    said = capfd.readouterr()
    assert said.err.count("\n") == 1 and said.out == ""
    assert list(tmp_path.iterdir()) == []


def test_relative_paths_start_where_the_command_does_whatever_hydra_does(
    tmp_path: Path, command: Callable[..., int]
) -> None:
    small = ("env=Pendulum-v1", "preset=short", "num_train_steps=20", "num_eval_episodes=1", "save_video=false")
    assert command(*small, *SILENT, "hydra.run.dir=run", "hydra.job.chdir=true") == 0
    assert (tmp_path / "run/finished.json").exists()


def test_the_command_sweeps(tmp_path: Path, command: Callable[..., int]) -> None:
    quick = ("log_save_tb=false", "save_figure=false", *SILENT)
    assert command("-m", "seed=1,2", *TINY, "hydra.sweep.dir=sweep", *quick) == 0
    assert sorted(path.parent.name for path in tmp_path.glob("sweep/*/train.csv")) == ["seed-1", "seed-2"]


@pytest.mark.parametrize("kind", ["folder", "link", "terabyte", "no YAML"])
def test_what_an_earlier_sweep_left_may_be_damaged(
    tmp_path: Path, command: Callable[..., int], capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    path = tmp_path / "sweep/multirun.yaml"
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(ROOT / "config/train.yaml")
    else:
        path.write_text("\udcff" if kind == "terabyte" else "hydra: {job: 3}", errors="surrogateescape")
        os.truncate(path, 2**40 if kind == "terabyte" else 15)
    before = sorted(tmp_path.rglob("*"))
    assert command("-m", "seed=1,2", *TINY, "hydra.sweep.dir=sweep", *SILENT) == 2
    error = capfd.readouterr().err
    assert error.startswith("train.py: ") and "multirun.yaml: " in error and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_ctrl_c_while_modules_are_imported_prints_one_line() -> None:
    code = "from launch import first_check; first_check.look(['env=cheetah_run']); import os, signal; "
    code += "os.kill(os.getpid(), signal.SIGINT); import torch"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr, ended.stdout) == (130, "\ninterrupted before training began\n", "")


@pytest.mark.parametrize(("begins", "rows_before"), [("| train", 30), ("| eval", 1)], ids=["importing", "evaluating"])
def test_ctrl_c_closes_the_logs_and_says_so_in_one_line(tmp_path: Path, begins: str, rows_before: int) -> None:
    """As from a terminal, every process gets the signal; one is evaluating, or still importing its modules."""
    # An episode has 200 steps: the first evaluation begins at row 20, and the second, at row 40, waits for it.
    lengths = ("num_train_steps=1000000", "num_seed_steps=1000000", "eval_frequency=4000", "eval_in_background=true")
    command = [sys.executable, str(ROOT / "train.py"), *TINY, *lengths]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=tmp_path, text=True, env=ONE_THREAD, start_new_session=True, **streams)
    assert process.stdout is not None
    while rows_before:
        rows_before -= process.stdout.readline().startswith(begins)
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)  # returns once no process holds the streams open
    assert process.returncode == 130
    (folder,) = tmp_path.glob("exp/*/*")
    assert error.strip().startswith("interrupted at step ") and str(folder.relative_to(tmp_path)) in error
    assert error.strip().count("\n") == 0
    header, *rows = (folder / "train.csv").read_text().splitlines()
    assert len(rows) >= 1
    assert all(row.count(",") == header.count(",") for row in rows)
