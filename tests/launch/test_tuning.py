"""preset=tune: what is searched, trials that fail, a study that was killed, and what may not go on."""

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf
from runs import ONE_THREAD, ROOT, assert_same

import train
from launch import command as command_line
from launch import line, tuning
from launch import preflight as before
from run.loop import Loop
from settings import compose
from settings.check import Settings
from utils import UserError

# Trials of half a second, of which some diverge: so fast a learning rate ends in actions that are not numbers.
TINY = (
    *("preset=tune", "env=Pendulum-v1", "num_train_steps=330", "num_seed_steps=300", "num_eval_episodes=1"),
    *("save_video=false", "save_figure=false", "log_save_tb=false", "num_threads=1", "checkpoint_frequency=50"),
    *("agent.batch_size=8", "agent.critic.hidden_dim=8", "agent.critic_lr=1e-3,1e30", "updates_per_step=1"),
    "execution=eager",  # a recording takes longer than these runs
    *("hydra.sweeper.n_trials=4", "hydra.sweeper.sampler.n_startup_trials=1"),
)
FEW = ("preset=tune", "updates_per_step=1", "agent.critic.hidden_dim=8", "agent.critic_lr=1e-3")  # of what is searched


def trials(folder: Path) -> list[tuple[Any, ...]]:
    """Number, state, value and parameters of each trial, in order."""
    database = sqlite3.connect(f"{(folder / 'study.db').as_uri()}?mode=ro", uri=True)
    params = (
        "select group_concat(param_name || '=' || param_value, ' ') from (select * from trial_params order by 1, 3)"
    )
    rows = database.execute(
        f"select number, state, value, ({params} p where p.trial_id = t.trial_id) "
        "from trials t left join trial_values using (trial_id) order by number"
    ).fetchall()
    database.close()
    return rows


def command(folder: Path, arguments: tuple[str, ...], log: Path, die: bool) -> None:
    """The command, in a fork of this process, which has imported everything; it may `die` in its second trial."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1), os.dup2(descriptor, 2)
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1)
    os.chdir(folder)
    sys.argv = ["train.py", *arguments]
    end_episode = Loop.end_episode

    def killed(loop: Loop, index: int) -> str:
        if len(list(folder.glob("**/train.csv"))) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return end_episode(loop, index)

    if die:
        Loop.end_episode = killed  # type: ignore[method-assign]
    os._exit(train.main())


def forked(folder: Path, *arguments: str, die: bool = False) -> tuple[int | None, str]:
    """How the command ended, and what it said."""
    log = folder / f"log_{die}"
    process = multiprocessing.get_context("fork").Process(target=command, args=(folder, arguments, log, die))
    process.start()
    process.join()
    return process.exitcode, log.read_text()


@pytest.mark.thorough
def test_a_killed_study_ends_as_one_that_was_not(tmp_path: Path) -> None:
    undisturbed = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *TINY, "hydra.sweep.dir=straight"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ONE_THREAD,
    )
    code, said = forked(tmp_path, *TINY, "hydra.sweep.dir=killed", die=True)
    assert code == -signal.SIGKILL, said
    assert [state for _, state, *_ in trials(tmp_path / "killed")] == ["COMPLETE", "RUNNING"]
    code, continued = forked(tmp_path, *TINY, "hydra.sweep.dir=killed", "resume=auto")
    assert code == 0, continued
    assert "Continuing from" in continued
    said, error = undisturbed.communicate()
    assert undisturbed.returncode == 0, error

    made = trials(tmp_path / "straight")
    assert trials(tmp_path / "killed") == made
    assert len(made) == 4 and {state for _, state, *_ in made} == {"COMPLETE", "FAIL"}
    assert "nan; stopped at step 301" in said  # why a trial failed
    values = [value for _, state, value, _ in made if state == "COMPLETE"]
    runs = sorted(path.parent for path in tmp_path.glob("straight/*/finished.json"))
    for folder in runs:
        assert_same(tmp_path / "killed" / folder.name, folder)
        evaluated = float((folder / "eval.csv").read_text().splitlines()[-1].split(",")[2])
        assert json.loads((folder / "finished.json").read_text())["last_return"] == pytest.approx(evaluated)
    returns = {json.loads((folder / "finished.json").read_text())["last_return"] for folder in runs}
    assert returns == set(values)
    best = OmegaConf.load(tmp_path / "straight/optimization_results.yaml")
    assert best == OmegaConf.load(tmp_path / "killed/optimization_results.yaml")
    assert best.best_value == max(returns) and best.best_params["agent.critic_lr"] == 1e-3
    assert f"Best value: {best.best_value}" in said and f"Best value: {best.best_value}" in continued


def preflight(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[list[Settings], list[str]]:
    """The runs that are checked, and what Hydra is given."""
    monkeypatch.chdir(folder)
    rest, resume = line.take_resume(list(arguments))
    checked: list[Settings] = []
    return checked, before.prepare(rest, checked.extend, resume == compose.AUTO)


def test_it_searches_around_another_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, argv = preflight(tmp_path, monkeypatch, "preset=[cpu,tune]", "env=cartpole_swingup", "agent.critic_tau=0.01")
    assert {(run.env, run.num_train_steps, run.agent["critic_tau"]) for run in runs} == {
        ("cartpole_swingup", 60_000, 0.01)
    }
    assert {run.agent["batch_size"] for run in runs} == {run.agent["critic"]["hidden_dim"] for run in runs}
    assert {run.updates_per_step for run in runs} == {1, 2, 4}
    assert {1e-4, 3e-3} < {run.agent["critic_lr"] for run in runs}
    for checked in runs:
        assert checked.agent["alpha_lr"] == checked.agent["actor_lr"] == checked.agent["critic_lr"]
        assert checked.agent["actor"]["hidden_dim"] == checked.agent["critic"]["hidden_dim"]
    assert {"hydra.sweeper.n_trials=40", "+resume=auto"} < set(argv)
    (folder,) = tmp_path.glob("exp/*/*")
    assert set(OmegaConf.load(folder / "tuning.yaml").searched) == {
        *("agent.critic_lr", "agent.batch_size", "agent.critic.hidden_dim", "reward_scale", "updates_per_step")
    }


def test_lunar_landers_own_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, _ = preflight(tmp_path, monkeypatch, "preset=[lunar_lander,tune_lunar_lander]")
    assert {run.env for run in runs} == {"LunarLanderContinuous-v3"}
    assert {run.replay_buffer_capacity for run in runs} == {1000, 3000, 5000, 7500, 10_000, 100_000}
    assert {run.agent["batch_size"] for run in runs} == {64, 128, 256}
    assert {run.agent["critic_tau"] for run in runs} == {0.005, 0.003, 0.001}
    assert {run.reward_scale for run in runs} == {1, 3, 5}
    assert {run.agent["temperature"]["decay"] for run in runs} == {15_000, 35_000}
    assert {run.update_every for run in runs} == {50, 100}
    assert {run.agent["actor"]["hidden_dim"] for run in runs} == {128, 256}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*FEW, "hydra.sweeper.n_trials=0"), r"hydra.sweeper.n_trials=0: at least 1"),
        ((*FEW, "hydra.sweeper.n_jobs=0"), r"hydra.sweeper.n_jobs=0: at least 1"),
        ((*FEW, "hydra.sweeper.direction=up"), r"direction=up: maximize or minimize"),
        (("-m", "hydra/sweeper=tuning"), r"nothing to search; give a key a range"),
        ((*FEW, "agent.critic_tau=interval(0.5,2)"), r"agent.critic_tau=2.0: .*less than or equal to 1"),
        ((*FEW, "agent.batch_size=interval(8,15)"), r"agent.batch_size=10.8: .*valid integer"),
        ((*FEW, "resume=auto"), r"name the folder to look into, such as hydra.sweep.dir"),
        (("-m", "seed=interval(1,2)"), r"INTERVAL_SWEEP"),  # Hydra's own sweeper has a grid
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_created(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        preflight(tmp_path, monkeypatch, *arguments)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ConfigStore.instance().repo["hydra"]["sweeper"], "optuna.yaml", raising=False)
    with pytest.raises(UserError, match=r"hydra/sweeper=optuna: not installed; pip install -e '\.\[optuna\]'"):
        preflight(tmp_path, monkeypatch, "preset=tune")
    assert list(tmp_path.iterdir()) == []


def open_study(folder: Path, may_continue: bool = True, settings: Any = None, **given: Any) -> int:
    sweeper = {"n_trials": 6, "direction": "maximize", "study_name": "it", "storage": f"sqlite:///{folder}/study.db"}
    searched = {"x": given.pop("x", "interval(0, 1)")}
    node = OmegaConf.create(sweeper | given)
    return tuning.open_study(
        folder, node, searched, settings or {"env": "cheetah_run", "agent": {"n": 1}}, may_continue
    )


@pytest.fixture
def every_call_is_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("run.folder.Lock", lambda path: None)


@pytest.mark.usefixtures("every_call_is_a_process")
def test_a_study_takes_up_the_trials_that_were_cut_off(tmp_path: Path) -> None:
    assert open_study(tmp_path, may_continue=False) == 6
    assert open_study(tmp_path) == 6  # killed before it was in the database
    study = optuna.create_study(study_name="it", storage=f"sqlite:///{tmp_path}/study.db")
    for state in ("COMPLETE", "FAIL", "RUNNING", "RUNNING"):
        trial = study.ask()
        trial.suggest_float("x", 0.0, 1.0)
        if state != "RUNNING":
            study.tell(trial, 1.0 if state == "COMPLETE" else None, optuna.trial.TrialState[state])
    values = [trial.params["x"] for trial in study.trials]
    assert open_study(tmp_path) == 4
    assert open_study(tmp_path, n_trials=9) == 7
    assert open_study(tmp_path, n_trials=1) == 0
    study = optuna.load_study("it", f"sqlite:///{tmp_path}/study.db")
    again = [study.ask() for _ in range(3)]
    assert [trial.number for trial in again] == [2, 3, 4]
    assert [trial.suggest_float("x", 0.0, 1.0) for trial in again[:2]] == values[2:]


@pytest.mark.usefixtures("every_call_is_a_process")
def test_a_study_goes_on_only_if_asked_to_and_only_as_it_was(tmp_path: Path) -> None:
    open_study(tmp_path)
    begun = (tmp_path / "tuning.yaml").read_text()
    for different, message in (
        ({"may_continue": False}, "a study is there already; add resume=auto"),
        (
            {"settings": {"env": "walker_walk", "agent": {"n": 1}}},
            "has env=cheetah_run, and env=walker_walk is asked for",
        ),
        ({"settings": {"env": "cheetah_run", "agent": {"n": 2}}}, "has agent.n=1, and agent.n=2 is asked for"),
        ({"x": "interval(0, 2)"}, r"searches x=interval\(0, 1\), and x=interval\(0, 2\) is asked for"),
        ({"direction": "minimize"}, "has hydra.sweeper.direction=maximize, and hydra.sweeper.direction=minimize"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            open_study(tmp_path, **different)  # type: ignore[arg-type]
        assert str(caught.value).startswith(f"hydra.sweep.dir={tmp_path}: ")
    assert (tmp_path / "tuning.yaml").read_text() == begun
    (tmp_path / "study.db").write_text("nonsense")
    with pytest.raises(UserError, match=r"study.db: the study cannot be read"):
        open_study(tmp_path)
    (tmp_path / "tuning.yaml").write_text("{")
    with pytest.raises(UserError, match=r"tuning.yaml: cannot be read"):
        open_study(tmp_path)


def test_one_process_a_study(tmp_path: Path) -> None:
    open_study(tmp_path)
    with pytest.raises(UserError, match="is working in this folder"):
        open_study(tmp_path)


def test_where_every_trial_failed_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "prepare", lambda *_: [f"hydra.sweep.dir={compose.quoted(str(tmp_path))}"])
    for storage in (None, f"sqlite:///{tmp_path}/study.db"):
        study = optuna.create_study(storage=storage)
        study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
        monkeypatch.setattr(sys, "argv", ["train.py"])
        assert command_line.run(partial(getattr, study, "best_trial"), lambda runs: None, lambda *_: None) == 3
        assert capsys.readouterr().err == "train.py: every trial failed; the lines above say why\n"


def test_values_do_not_depend_on_when_the_process_began() -> None:
    def values(seed: int, stops: int) -> list[dict[str, Any]]:
        study = optuna.create_study(direction="maximize")
        for number in range(16):
            if number % stops == 0:
                study.sampler = tuning.SeededTPE(seed, n_startup_trials=6)
            trial = study.ask()
            x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
            trial.suggest_categorical("kind", ["a", "b", "c"])
            study.tell(trial, -((x - 0.3) ** 2) - y)
        return [trial.params for trial in study.trials]

    straight = values(1, stops=100)
    assert values(1, stops=3) == straight
    assert values(2, stops=100)[0] != straight[0]
    assert len({params["x"] for params in straight} | {params["y"] for params in straight}) == 32
    late = [params["y"] for params in straight[8:]]
    assert sum(late) / len(late) < 0.4  # it learns: at random, 0.5
