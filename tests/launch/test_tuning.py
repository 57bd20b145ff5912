"""preset=tune: the search space, failed and pruned trials, killed studies, and studies that may not be continued."""

import json
import math
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import probes
import pytest
from hydra.core.utils import JobReturn, JobStatus
from lines import sweep_request
from omegaconf import OmegaConf
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import _CachedStorage
from runs import ONE_THREAD, ROOT, SILENT, Killed, assert_same, rows

import train
from launch import command as command_line
from launch import preflight, pruning, sampling, tuning
from run.loop import Loop
from run.saving import folder as run_folder
from settings import compose
from utils import RunError, UserError

# A trial takes half a second. An episode's return is five times its pay. A learning rate of 1e30 leads to NaN actions.
TINY = (
    *("preset=tune", "env=probes:ProbePaying-v0", "env_kwargs.pay=interval(0,1)", "num_eval_episodes=1"),
    *("num_train_steps=130", "num_seed_steps=100", "eval_frequency=110", "checkpoint_frequency=50", "num_threads=1"),
    *("save_video=false", "save_figure=false", "log_save_tb=false", "agent.batch_size=8", "agent.critic.hidden_dim=8"),
    *("agent.critic_lr=1e-3,1e30", "agent.critic_tau=0.01", "reward_scale=1", "updates_per_step=1"),
    "execution=eager",  # recording the update takes longer than these runs
    # With this seed the second and the fourth trial are worse than the earlier ones, and the last two diverge.
    *("hydra.sweeper.n_trials=6", "hydra.sweeper.sampler.n_startup_trials=1", "hydra.sweeper.sampler.seed=55"),
)
WITH_PROBES = ONE_THREAD | {"PYTHONPATH": str(Path(probes.__file__).parent)}
MEDIAN = ("hydra/sweeper/pruner=median", "hydra.sweeper.pruner.n_startup_trials=1")
FEW = ("preset=tune", "updates_per_step=1", "agent.critic.hidden_dim=8", "agent.critic_lr=1e-3")  # keys left to search


def trials(folder: Path) -> list[tuple[Any, ...]]:
    """Returns the number, state, value, parameters and evaluations of each trial, in order."""
    database = sqlite3.connect(f"{(folder / 'study.db').as_uri()}?mode=ro", uri=True)
    params = (
        "select group_concat(param_name || '=' || param_value, ' ') from (select * from trial_params order by 1, 3)"
    )
    evaluations = (
        "select group_concat(step || ':' || intermediate_value, ' ') from "
        "(select * from trial_intermediate_values order by step)"
    )
    rows = database.execute(
        f"select number, state, value, ({params} p where p.trial_id = t.trial_id), "
        f"({evaluations} e where e.trial_id = t.trial_id) "
        "from trials t left join trial_values using (trial_id) order by number"
    ).fetchall()
    database.close()
    return rows


def command(folder: Path, arguments: tuple[str, ...], log: Path, die: bool) -> None:
    """Runs the command in a fork of this process, which has imported everything; with `die` it is killed in its second
    trial, after a checkpoint."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1), os.dup2(descriptor, 2)
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1)
    os.chdir(folder)
    sys.argv = ["train.py", *arguments]
    end_episodes = Loop.end_episodes

    def killed(loop: Loop, *ended: Any) -> None:
        if len(list(folder.glob("**/train.csv"))) == 2 and loop.progress.step > 100:
            os.kill(os.getpid(), signal.SIGKILL)
        end_episodes(loop, *ended)

    if die:
        Loop.end_episodes = killed  # type: ignore[method-assign]
    os._exit(train.main())


def forked(folder: Path, *arguments: str, die: bool = False) -> tuple[int | None, str]:
    """Returns the command's exit code and its output."""
    log = folder / f"log_{die}"
    process = multiprocessing.get_context("fork").Process(target=command, args=(folder, arguments, log, die))
    process.start()
    process.join()
    return process.exitcode, log.read_text()


class _NoLock:
    def __init__(self, folder: Path): ...

    def is_in_place(self) -> bool:
        return True

    def require_in_place(self) -> None: ...

    def release(self) -> None: ...


@pytest.fixture
def every_call_is_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("run.saving.folder.Lock", _NoLock)


@pytest.mark.thorough
def test_a_killed_study_ends_as_one_that_was_not(tmp_path: Path) -> None:
    undisturbed = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *TINY, *MEDIAN, "hydra.sweep.dir=straight"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=WITH_PROBES,
    )
    code, said = forked(tmp_path, *TINY, *MEDIAN, "hydra.sweep.dir=killed", die=True)
    assert code == -signal.SIGKILL, said
    assert [state for _, state, *_ in trials(tmp_path / "killed")] == ["COMPLETE", "RUNNING"]
    code, continued = forked(tmp_path, *TINY, *MEDIAN, "hydra.sweep.dir=killed", "resume=auto")
    assert code == 0, continued
    assert "Continuing from" in continued and "step_100" in continued
    said, error = undisturbed.communicate()
    assert undisturbed.returncode == 0, error

    made = trials(tmp_path / "straight")
    assert trials(tmp_path / "killed") == made
    assert [state for _, state, *_ in made] == ["COMPLETE", "PRUNED", "COMPLETE", "PRUNED", "FAIL", "FAIL"]
    assert "Trial 4: failed: SACAgent.update_step: in the first update, train_" in said
    for text in (said, continued):
        assert "Trial 1: pruned at step 110, return " in text
    values = [value for _, state, value, *_ in made if state != "FAIL"]
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


@pytest.mark.usefixtures("every_call_is_a_process")
def test_a_trial_that_is_worse_is_pruned_and_its_run_may_be_continued_by_hand(
    tmp_path: Path, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    two = (*TINY, *MEDIAN, "hydra.sweeper.n_trials=2", "hydra.sweep.dir=study", *SILENT)
    assert command(*two) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Trial ")]
    made = trials(tmp_path / "study")
    assert said == [f"Trial 0: return {made[0][2]:.1f}", f"Trial 1: pruned at step 110, return {made[1][2]:.1f}"]
    assert [state for _, state, *_ in made] == ["COMPLETE", "PRUNED"]
    study = optuna.load_study(study_name="tuning", storage=f"sqlite:///{tmp_path}/study/study.db")
    assert [trial.intermediate_values for trial in study.trials] == [{110: value} for _, _, value, *_ in made]
    (pruned,) = (path.parent for path in tmp_path.glob("study/*/finished.json") if "pruned" in path.read_text())
    assert run_folder.finished(pruned) == (110, made[1][2])
    assert [row["step"] for row in rows(pruned / "eval.csv")] == ["110"]
    assert not list(tmp_path.glob("study/*/failed.json"))

    assert command(*two, "resume=auto") == 0, "a study that is finished"
    assert "Trial " not in capsys.readouterr().out
    assert command(f"resume={pruned}", "trust=probes") == 0
    assert run_folder.finished(pruned) == (130, made[1][2]) and not run_folder.was_pruned(pruned)
    assert trials(tmp_path / "study") == made


@pytest.mark.cluster
@pytest.mark.parametrize("launcher", ["this_machine", "slurm_local"])
def test_a_pruned_study_is_the_same_with_runs_in_processes_of_their_own(
    launcher: str, tmp_path: Path, command: Callable[..., int]
) -> None:
    three = (*TINY, *MEDIAN, "hydra.sweeper.n_trials=3")
    apart = [sys.executable, str(ROOT / "train.py"), *three, "hydra.sweep.dir=apart", f"hydra/launcher={launcher}"]
    ended = subprocess.run(apart, cwd=tmp_path, capture_output=True, text=True, env=WITH_PROBES, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert command(*three, "hydra.sweep.dir=here", *SILENT) == 0
    made = trials(tmp_path / "here")
    assert trials(tmp_path / "apart") == made
    assert [state for _, state, *_ in made] == ["COMPLETE", "PRUNED", "COMPLETE"]


@pytest.mark.usefixtures("every_call_is_a_process")
def test_a_pruned_run_whose_study_was_killed_before_it_noted_that_is_not_run_again(
    tmp_path: Path, command: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = (*TINY, *MEDIAN, "hydra.sweeper.n_trials=2", "hydra.sweep.dir=study", *SILENT)
    with monkeypatch.context() as patched:
        patched.setattr("optuna.study.Study.tell", dies_after(1, optuna.study.Study.tell))
        with pytest.raises(Killed):
            command(*study)
    assert [state for _, state, *_ in trials(tmp_path / "study")] == ["COMPLETE", "RUNNING"]
    capsys.readouterr()
    assert command(*study, "resume=auto") == 0
    said = capsys.readouterr().out
    assert "pruned at step 110; nothing is left to do" in said and "Trial 1: pruned at step 110" in said
    assert [state for _, state, *_ in trials(tmp_path / "study")] == ["COMPLETE", "PRUNED"]


def test_it_searches_around_another_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, argv = sweep_request(
        tmp_path, monkeypatch, "preset=[cpu,tune]", "env=cartpole_swingup", "agent.critic_tau=0.01"
    )
    assert {(run.env, run.num_train_steps, run.agent["critic_tau"]) for run in runs} == {
        ("cartpole_swingup", 60_000, 0.01)
    }
    assert {run.agent["batch_size"] for run in runs} == {run.agent["critic"]["hidden_dim"] for run in runs}
    assert {run.updates_per_step for run in runs} == {1, 2, 4}
    assert {1e-4, 3e-3} < {run.agent["critic_lr"] for run in runs}
    for checked in runs:
        assert checked.agent["alpha_lr"] == checked.agent["actor_lr"] == checked.agent["critic_lr"]
        assert checked.agent["actor"]["hidden_dim"] == checked.agent["critic"]["hidden_dim"]
    assert "+resume=auto" in argv
    assert compose.compose_config("train", argv).hydra.sweeper.pruner is None, "no trial is pruned unless asked to"
    (folder,) = tmp_path.glob("exp/*/*")
    assert set(OmegaConf.load(folder / "tuning.yaml").searched) == {
        *("agent.critic_lr", "agent.batch_size", "agent.critic.hidden_dim", "reward_scale", "updates_per_step")
    }


def test_lunar_landers_own_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, _ = sweep_request(tmp_path, monkeypatch, "preset=[lunar_lander,tune_lunar_lander]")
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
        ((*FEW, "hydra.sweeper.n_trials=many"), r"hydra.sweeper.n_trials=many: a whole number"),
        ((*FEW, "hydra.sweeper.direction=up"), r"direction=up: maximize or minimize"),
        ((*FEW, "hydra.sweeper.sampler.seed=-1"), r"hydra.sweeper.sampler: .*seed=-1: .*greater than or equal to 0"),
        ((*FEW, "+hydra.sweeper.sampler.sed=1"), r"hydra.sweeper.sampler: .*unexpected keyword argument 'sed'"),
        ((*FEW, "hydra.sweeper.pruner=median"), r"pruner=median: one of .*, such as hydra/sweeper/pruner=median"),
        (
            (*FEW, "hydra.sweeper.pruner={_target_: optuna.samplers.RandomSampler}"),
            r"one of Optuna's pruners goes here",
        ),
        ((*FEW, *MEDIAN, "hydra.sweeper.pruner.n_warmup_steps=-1"), r"hydra.sweeper.pruner: .*cannot be negative"),
        ((*FEW, *MEDIAN, "logger.sinks.csv=null"), r"hydra.sweeper.pruner: it reads eval.csv"),
        ((*FEW, "agent.critic_tau=tag(log,interval(0,1))"), r"agent.critic_tau=tag\(log,.*: `low > 0` must hold"),
        ((*FEW, "agent.critic_tau=tag(lin,interval(0,1))"), r"agent.critic_tau=tag\(lin,.*: the only tag is log"),
        ((*FEW, "agent.batch_size=shuffle(64,128)"), r"agent.batch_size=shuffle.*: the sampler chooses the order"),
        ((*FEW, "agent.batch_size=range(64,8)"), r"agent.batch_size=range\(64,8\): no value is left"),
        ((*FEW, "agent.batch_size=range(8,64,0)"), r"agent.batch_size=range\(8,64,0\): .*must not be zero"),
        (("-m", "hydra/sweeper=tuning"), r"nothing to search; give a key a range"),
        ((*FEW, "agent.critic_tau=interval(0.5,2)"), r"agent.critic_tau=2.0: .*less than or equal to 1"),
        ((*FEW, "agent.batch_size=interval(8,15)"), r"agent.batch_size=10.8: an integer goes here"),
        ((*FEW, "resume=auto"), r"name the folder to look into, such as hydra.sweep.dir"),
        (("-m", "seed=interval(1,2)"), r"INTERVAL_SWEEP"),  # Hydra's own sweeper takes only a grid
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_created(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        sweep_request(tmp_path, monkeypatch, *arguments)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name in ("launch.tuning", "launch.sampling", "launch.database")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delattr("launch.tuning", raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"Optuna 5 is not installed; pip install -e '\.\[optuna\]'"):
        sweep_request(tmp_path, monkeypatch, "preset=tune")
    assert list(tmp_path.iterdir()) == []


def open_study(folder: Path, may_continue: bool = True, settings: Any = None, **given: Any) -> None:
    searched = {"x": given.pop("x", "interval(0, 1)")}
    settings = settings or {"env": "cheetah_run", "agent": {"n": 1}}
    tuning.open_study(folder, given.pop("direction", "maximize"), searched, settings, may_continue)


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
    with sqlite3.connect(tmp_path / "study.db") as old:  # as Optuna 2.10 made it
        old.execute("create table alembic_version (version_num varchar(32))")
        old.execute("insert into alembic_version values ('v2.6.0.a')")
    old.close()
    with pytest.raises(
        UserError, match=r"study.db: another version of Optuna wrote .*: optuna storage upgrade"
    ) as caught:
        open_study(tmp_path)
    assert "\n" not in str(caught.value)
    (tmp_path / "study.db").write_text("nonsense")
    with pytest.raises(UserError, match=r"study.db: the study cannot be read"):
        open_study(tmp_path)
    (tmp_path / "tuning.yaml").write_text("{")
    with pytest.raises(UserError, match=r"tuning.yaml: cannot be read"):
        open_study(tmp_path)


@pytest.mark.parametrize("data", [b"step,episode_reward\n\xff,1\n", b"step\n1\n", b"step,episode_reward\n1\n", None])
def test_a_trials_log_that_is_damaged_is_one_line(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "eval.csv"
    path.mkdir() if data is None else path.write_bytes(data)
    with pytest.raises(RunError, match=r"eval\.csv: not a log of a run \(") as damaged:
        pruning.evaluations(tmp_path, 1)
    assert "\n" not in str(damaged.value)


def test_one_process_a_study(tmp_path: Path) -> None:
    open_study(tmp_path)
    with pytest.raises(UserError, match="is working in this folder"):
        open_study(tmp_path)


class Pool:
    """A launcher whose runs end at once.

    Args:
        folder: the sweep's folder.
        returns: maps a run's `x` to its evaluations in order; a final nan means that the run failed there.
    """

    def __init__(self, folder: Path, returns: Callable[[float], list[float]] = lambda x: [x, 2 * x]):
        self.folder, self.returns = folder, returns
        self.batches: list[tuple[int, list[list[str]]]] = []

    def launch(self, batch: list[list[str]], initial_job_idx: int) -> list[JobReturn]:
        self.batches.append((initial_job_idx, batch))
        return [self.job(f"run{initial_job_idx + index}", overrides) for index, overrides in enumerate(batch)]

    def job(self, name: str, overrides: list[str]) -> JobReturn:
        run = self.folder / name
        run.mkdir(exist_ok=True)
        returns = self.returns(float(overrides[0].removeprefix("x=")))
        write_evaluations(run, [value for value in returns if not math.isnan(value)])
        if math.isnan(returns[-1]):
            run_folder.mark_failed(run, overrides, "too hot")
        hydra_cfg = OmegaConf.create({"hydra": {"runtime": {"output_dir": str(run)}}})
        job = JobReturn(cfg=OmegaConf.create({"eval_frequency": 10}), hydra_cfg=hydra_cfg, status=JobStatus.COMPLETED)
        job.return_value = returns[-1]
        return job


def write_evaluations(run: Path, returns: list[float]) -> None:
    """Writes an eval.csv whose evaluations are due every 10 steps and made one step late."""
    rows = "".join(f"{10 * due + 1},{value!r}\n" for due, value in enumerate(returns, 1))
    (run / "eval.csv").write_text(f"step,episode_reward\n{rows}")


def sweep(pool: Pool, *arguments: str, n_trials: int = 5, n_jobs: int = 1, pruner: Any = None) -> None:
    sampler = {"_target_": "launch.sampling.SeededTPE", "seed": 1, "n_startup_trials": 2}
    sweeper = {"n_trials": n_trials, "n_jobs": n_jobs, "direction": "maximize", "sampler": sampler, "pruner": pruner}
    node = {"sweeper": sweeper | {"params": None}, "sweep": {"dir": str(pool.folder)}}
    overrides = list(arguments or ("x=interval(0,1)", "seed=3", "kind=a,b"))
    tuning.sweep(pool, OmegaConf.create({"hydra": node}), overrides)  # type: ignore[arg-type]


def dies_after(calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` limited to so many calls: the next one raises Killed, which stands for the process's end."""
    left = iter(range(calls))

    def dying(*args: Any, **kwargs: Any) -> Any:
        if next(left, None) is None:
            raise Killed
        return function(*args, **kwargs)

    return dying


@pytest.mark.parametrize(
    ("n_jobs", "method", "calls"),
    [
        (1, "set_trial_param", 3),  # a trial has one of its two values
        (2, "set_trial_param", 6),  # one trial of a batch has both its values
        (2, "set_trial_intermediate_value", 5),  # a run has ended, and one of its two evaluations is recorded
        (2, "set_trial_state_values", 3),  # one trial of a batch is finished
    ],
)
def test_wherever_a_study_is_killed_it_ends_as_one_that_was_not(
    n_jobs: int, method: str, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("straight", "killed"):
        (tmp_path / name).mkdir()
    straight = Pool(tmp_path / "straight")
    sweep(straight, n_jobs=n_jobs)
    assert [(first, len(batch)) for first, batch in straight.batches] == (
        [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)] if n_jobs == 1 else [(0, 2), (2, 2), (4, 1)]
    )
    made = trials(straight.folder)
    assert len({params for *_, params, _ in made}) == 5
    with monkeypatch.context() as patched:
        patched.setattr(_CachedStorage, method, dies_after(calls, getattr(_CachedStorage, method)))
        with pytest.raises(Killed):
            sweep(Pool(tmp_path / "killed"), n_jobs=n_jobs)
    assert trials(tmp_path / "killed") != made
    resumed = Pool(tmp_path / "killed")
    sweep(resumed, n_jobs=n_jobs)
    assert trials(tmp_path / "killed") == made
    assert resumed.batches[-1] == straight.batches[-1]


def test_equal_trials_of_a_batch_are_one_run(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    sweep(pool, "x=choice(1,2)", n_trials=6, n_jobs=3)
    assert [len(set(map(tuple, batch))) for _, batch in pool.batches] == [len(batch) for _, batch in pool.batches]
    assert sum(len(batch) for _, batch in pool.batches) < 6
    ended = trials(tmp_path)
    assert len(ended) == 6 and {state for _, state, *_ in ended} == {"COMPLETE"}


def test_a_study_takes_up_the_trials_that_were_cut_off(tmp_path: Path) -> None:
    class Stopped(Pool):
        def launch(self, batch: list[list[str]], initial_job_idx: int) -> list[JobReturn]:
            if initial_job_idx == 2:
                raise KeyboardInterrupt
            return super().launch(batch, initial_job_idx)

    with pytest.raises(KeyboardInterrupt):
        sweep(Stopped(tmp_path), n_jobs=2)
    states = [(state, params) for _, state, _, params, _ in trials(tmp_path)]
    assert [state for state, _ in states] == ["COMPLETE", "COMPLETE", "RUNNING", "RUNNING"]
    none = Pool(tmp_path)
    sweep(none, n_trials=2)
    assert none.batches == []
    again = Pool(tmp_path)
    sweep(again, n_trials=5)
    assert [first for first, _ in again.batches] == [2, 3, 4]
    assert [params for _, _, _, params, _ in trials(tmp_path)][2:4] == [params for _, params in states[2:]]


def test_trials_are_written_down_as_they_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(Pool(tmp_path, lambda x: [x, math.nan] if x < 0.5 else [x, 2 * x]), n_trials=8)
    study = optuna.load_study(study_name="tuning", storage=f"sqlite:///{tmp_path}/study.db")
    xs = [trial.params["x"] for trial in study.trials]
    assert {x < 0.5 for x in xs} == {False, True}
    for trial, x, said in zip(study.trials, xs, capsys.readouterr().out.splitlines(), strict=False):
        assert trial.intermediate_values == ({10: x} if x < 0.5 else {10: x, 20: 2 * x})
        assert trial.value == (None if x < 0.5 else 2 * x)
        assert trial.state.name == ("FAIL" if x < 0.5 else "COMPLETE")
        assert said.startswith(f"Trial {trial.number}: " + ("failed: too hot" if x < 0.5 else "return "))
    best = OmegaConf.load(tmp_path / "optimization_results.yaml")
    assert best.best_value == 2 * max(xs) and best.best_params == study.best_params


def test_an_override_reaches_the_runs_as_it_was_written(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    sweep(pool, "x=range(0,2)", "env='a b,c'", r"kind=p\:q", "~seed", "name='a b','c,d'", n_trials=1)
    ((_, ((x, *fixed, name),)),) = pool.batches
    assert x in ("x=0", "x=1") and fixed == ["env='a b,c'", r"kind=p\:q", "~seed"]
    assert compose.parse([name])[0].value() in ("a b", "c,d")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("8,16", CategoricalDistribution([8, 16])),
        ("choice(0.5,true,a,[1,2])", CategoricalDistribution([0.5, True, "a", "[1,2]"])),
        (r"my\:a,'b c'", CategoricalDistribution([r"my\:a", "'b c'"])),
        ("interval(0,2)", FloatDistribution(0.0, 2.0)),
        ("int(interval(1,3))", IntDistribution(1, 3)),
        ("tag(log,interval(1e-4,1))", FloatDistribution(1e-4, 1.0, log=True)),
        ("tag(log,int(interval(1,64)))", IntDistribution(1, 64, log=True)),
        ("range(1,6)", IntDistribution(1, 5)),
        ("range(5,1,-2)", IntDistribution(3, 5, step=2)),
        ("range(0.1,0.35,0.1)", FloatDistribution(0.1, 0.3, step=0.1)),
    ],
)
def test_what_is_searched(written: str, expected: Any) -> None:
    assert sampling.search_space(compose.parse([f"x={written}", "y=1"])) == {"x": expected}


def test_where_every_trial_failed_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = Pool(tmp_path, lambda x: [math.nan])
    monkeypatch.setattr(command_line, "hydra_main", lambda: sweep(failing, n_trials=1))
    monkeypatch.setattr(preflight, "prepare_sweep", lambda request: ([], tmp_path))
    monkeypatch.setattr(sys, "argv", ["train.py", "-m", "seed=1,2"])
    assert command_line.main() == 3
    assert capsys.readouterr().err == "train.py: every trial failed; the lines above say why\n"
    assert not (tmp_path / "optimization_results.yaml").exists()


@pytest.mark.parametrize(
    "pruner",
    [
        {"_target_": "optuna.pruners.MedianPruner", "n_startup_trials": 2},
        {"_target_": "optuna.pruners.SuccessiveHalvingPruner", "min_resource": 10, "reduction_factor": 2},
    ],
)
def test_a_run_knows_whether_it_is_worse_than_the_trials_before_it(pruner: dict[str, Any], tmp_path: Path) -> None:
    """This also holds for a pruner that keeps notes in the study, and asking does not change the study."""
    sweep(Pool(tmp_path, lambda x: [x, 10 * x]), n_trials=4, pruner=pruner)
    database = (tmp_path / "study.db").read_bytes()
    xs = [
        trial.params["x"]
        for trial in optuna.load_study(study_name="tuning", storage=f"sqlite:///{tmp_path}/study.db").trials
    ]

    def is_worse(number: int, *returns: float, num_train_steps: int = 50) -> bool:
        cfg: Any = SimpleNamespace(num_train_steps=num_train_steps, eval_frequency=10)
        write_evaluations(tmp_path, list(returns))
        return pruning.Trial(str(tmp_path), number, pruner).is_worse(tmp_path, cfg, 10 * len(returns) + 1)

    low, high = min(xs) / 2, max(xs) * 2
    assert is_worse(4, low) and not is_worse(4, high)
    assert not is_worse(0, low), "there was none before it"
    assert is_worse(4, low, low) and not is_worse(4, low, 10 * high)
    assert not is_worse(4, low, low, num_train_steps=20), "its last evaluation leaves nothing to stop"
    assert (tmp_path / "study.db").read_bytes() == database


def test_a_run_in_a_process_of_its_own_is_the_same_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    node = {
        "sweeper": {"_target_": "hydra_plugins.tuning.TuningSweeper", "pruner": {"_target_": "a.B", "n": 2}},
        "sweep": {"dir": "/sweep"},
        "job": {"num": 7},
    }
    job = OmegaConf.create(node)
    trial = pruning.Trial("/sweep", 7, {"_target_": "a.B", "n": 2})
    assert pruning.Trial.of_job(job) == trial
    assert pruning.Trial.of_process() is None
    for name, value in trial.environment().items():
        monkeypatch.setenv(name, value)
    assert pruning.Trial.of_process() == trial
    for key, value in (("pruner", None), ("_target_", "hydra._internal.core_plugins.basic_sweeper.BasicSweeper")):
        job.sweeper[key] = value
        assert pruning.Trial.of_job(job) is None


@pytest.mark.parametrize("multivariate", [True, False])
def test_values_do_not_depend_on_when_the_process_began(multivariate: bool) -> None:
    def values(seed: int, stops: int) -> list[dict[str, Any]]:
        study = optuna.create_study(direction="maximize")
        for number in range(16):
            if number % stops == 0:
                study.sampler = sampling.SeededTPE(seed, n_startup_trials=6, multivariate=multivariate)
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
    assert sum(late) / len(late) < 0.4  # it learns; random values would give 0.5
