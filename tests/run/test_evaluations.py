"""Background evaluations give the same results as foreground ones, whatever happens to their process."""

import os
import re
import shutil
import signal
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import probes
import psutil
import pytest
from runs import assert_same, at_step, die_in, go_on, rows

from run.checkpoint import list_checkpoints
from run.evaluation import background as in_background
from run.evaluation.background import BackgroundEvaluator
from run.evaluation.evaluations import load_best
from run.stopping import Stopped
from run.workspace import read_finished

RUN = (
    *("env=probes:ProbeDrawn-v0", "num_train_steps=200", "num_seed_steps=40", "num_threads=1", "log_save_tb=true"),
    *("eval_frequency=50", "checkpoint_frequency=30"),
)
FOREGROUND, BACKGROUND = (*RUN, "eval_in_background=false"), (*RUN, "eval_in_background=true")


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight") / "run"
    probes.train(folder, *FOREGROUND)
    return folder


def pid_of(background: BackgroundEvaluator | None) -> int:
    assert background is not None
    (pid,) = background._executor._processes
    return pid


@pytest.fixture
def unanswered(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing evaluates in the background, so no answer comes, and no process starts."""
    monkeypatch.setattr(BackgroundEvaluator, "begin", lambda self, *_: setattr(self, "_result", Future()))
    return monkeypatch


def test_training_goes_on_meanwhile_and_waits_for_the_previous_evaluation(
    tmp_path: Path, straight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, waited, pids = BackgroundEvaluator.wait, [], set()
    run = probes.workspace(tmp_path / "run", *BACKGROUND)

    def noted(self: BackgroundEvaluator) -> Any:
        waited.append(run.step)
        pids.add(pid_of(self))
        return wait(self)

    monkeypatch.setattr(BackgroundEvaluator, "has_answered", False)
    monkeypatch.setattr(BackgroundEvaluator, "wait", noted)
    run.run()
    assert waited == [100, 150, 200, 200]
    assert "evaluator" not in vars(run.evaluations)  # this process made no evaluator
    assert_same(tmp_path / "run", straight)
    assert len(pids) == 1 and not psutil.pid_exists(pids.pop())


def test_a_run_killed_during_an_evaluation_ends_in_the_same_bytes(
    tmp_path: Path, straight: Path, unanswered: pytest.MonkeyPatch
) -> None:
    die_in(probes.workspace(tmp_path / "run", *BACKGROUND), 79)
    assert not (tmp_path / "run/eval.csv").exists()
    unanswered.undo()
    go_on(tmp_path / "run", "eval_in_background=false")
    assert_same(tmp_path / "run", straight)


@pytest.mark.parametrize(
    ("number", "timeout_s", "reason"),
    [
        (signal.SIGKILL, 600, "BrokenProcessPool"),
        pytest.param(signal.SIGSTOP, 0.01, "TimeoutError: ", marks=pytest.mark.thorough),
    ],
    ids=["dies", "hangs"],
)
def test_if_the_process_dies_or_hangs_the_run_evaluates_itself(
    tmp_path: Path,
    straight: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
    timeout_s: float,
    reason: str,
) -> None:
    run, begin, pids = probes.workspace(tmp_path / "run", *BACKGROUND), BackgroundEvaluator.begin, []

    def hit(self: BackgroundEvaluator, step: int, weights: dict[str, Any]) -> None:
        begin(self, step, weights)
        if step == 100:
            pids.append(pid_of(self))
            os.kill(pids[0], number)
            monkeypatch.setattr(in_background, "TIMEOUT_S", timeout_s)

    monkeypatch.setattr(BackgroundEvaluator, "begin", hit)
    run.run()
    assert_same(tmp_path / "run", straight)
    # That of step 100 may have answered before it died.
    assert re.search(rf"From step 1[05]0 on, training waits for evaluations \({reason}", capsys.readouterr().out)
    assert not psutil.pid_exists(pids[0])


def test_a_run_that_may_be_pruned_waits_and_ends_with_the_row_that_decides(tmp_path: Path, straight: Path) -> None:
    asked: list[int] = []
    run = probes.workspace(tmp_path / "run", *BACKGROUND)

    def decide(step: int) -> bool:
        asked.append(step)
        assert (run.step, rows(tmp_path / "run/eval.csv")[-1]["step"]) == (step, str(step))
        return step == 100

    run.evaluations.prune = decide
    last_return = run.run()
    assert (asked, run.step) == ([50, 100], 100)
    returns, expected = ([row["episode_reward"] for row in rows(f / "eval.csv")] for f in (tmp_path / "run", straight))
    assert returns == expected[:2]
    finished = read_finished(tmp_path / "run")
    assert finished == {"step": 100, "last_return": last_return, "pruned": True}


@pytest.mark.parametrize("at", [75, 99], ids=["while it trains", "while it waits"])
def test_a_signal_ends_both_processes_and_nothing_is_lost(
    tmp_path: Path, straight: Path, unanswered: pytest.MonkeyPatch, at: int
) -> None:
    run = probes.workspace(tmp_path / "run", *BACKGROUND)
    if at == 75:
        at_step(run, at, lambda: os.kill(os.getpid(), signal.SIGTERM))
    else:
        at_step(run, at, lambda: threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start())
    with pytest.raises(Stopped):  # before the grace period ends this process
        run.run()
    unanswered.undo()
    go_on(tmp_path / "run", "eval_in_background=false")
    assert_same(tmp_path / "run", straight)


def test_auto_evaluates_in_the_background_if_a_long_run_has_a_free_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_process(*overrides: str) -> bool:
        run = probes.workspace(tmp_path / str(time.monotonic_ns()), *overrides)
        run.close()
        return run.evaluations.background is not None

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert has_process("num_train_steps=10_000") and not has_process("num_train_steps=9_999")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert not has_process("num_train_steps=10_000") and has_process("eval_in_background=true")


def test_what_needs_more_than_a_policy_is_evaluated_here(tmp_path: Path) -> None:
    acts_itself = "agent._target_=probes.ActsItself"
    run = probes.train(tmp_path / "run", *BACKGROUND, acts_itself, "checkpoint_frequency=0")
    assert run.evaluations.background is None and len(rows(tmp_path / "run/eval.csv")) == 4


def test_the_best_policy_is_kept(tmp_path: Path) -> None:
    whole = probes.train(tmp_path / "whole", *FOREGROUND, "keep_checkpoints=9").work_dir
    best = max(rows(whole / "eval.csv"), key=lambda row: float(row["episode_reward"]))
    policy, kept_step, kept_return = load_best(whole)
    assert (kept_step, kept_return) == (int(best["step"]), float(best["episode_reward"])) and kept_step > 50
    evaluator = probes.workspace(tmp_path / "other", *FOREGROUND).evaluations.evaluator
    returns = evaluator.evaluate(policy, kept_step).returns
    assert sum(returns) / len(returns) == kept_return
    gone_back = shutil.copytree(whole, tmp_path / "run")
    (gone_back / "finished.json").unlink()
    for path in list_checkpoints(gone_back):
        if int(path.name.removeprefix("step_")) > 60:
            shutil.rmtree(path)
    go_on(gone_back)
    assert_same(gone_back, whole)


@pytest.mark.parametrize("in_background", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_each_evaluation_has_its_video(opengl: None, tmp_path: Path, in_background: bool) -> None:
    run = ("env=Pendulum-v1", "+env_kwargs.max_episode_steps=20", "num_train_steps=40", "eval_frequency=20")
    probes.train(tmp_path, *run, "num_eval_episodes=1", "save_video=true", f"eval_in_background={in_background}")
    assert {path.name for path in (tmp_path / "video").iterdir()} == {"20.mp4", "40.mp4"}
