"""Background evaluations give the same results as foreground ones, whatever happens to their process."""

import errno
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import probes
import psutil
import pytest
import torch
from runs import Killed, assert_same, at_step, die_in, go_on, rows

from agent.policy_file import load_policy
from run.evaluation import background
from run.evaluation.background import BackgroundEvaluator
from run.evaluation.evaluator import Evaluator
from run.saving import best, checkpoint
from run.saving import folder as run_folder
from run.stopping import Stopped
from settings import operating_system
from utils import UserError

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


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the evaluating processes, each added when its process starts."""
    start, pids = BackgroundEvaluator._start, []

    def noted(self: BackgroundEvaluator) -> None:
        start(self)
        assert self._process in operating_system._helpers  # so no exit waits for it
        pids.append(self._process.pid)

    monkeypatch.setattr(BackgroundEvaluator, "_start", noted)
    return pids


def none_is_left(process: int) -> bool:
    return not psutil.pid_exists(process)


def test_background_evaluations_have_the_results_of_foreground_ones(
    tmp_path: Path, straight: Path, processes: list[int]
) -> None:
    run = probes.workspace(tmp_path / "run", *BACKGROUND)
    run.run()
    run.close()
    assert "evaluator" not in vars(run.evaluations)  # this process made no evaluator
    assert_same(tmp_path / "run", straight)
    assert none_is_left(processes[0])


def test_training_does_not_wait_for_the_process_to_start(
    tmp_path: Path, straight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, may_start, was_told = BackgroundEvaluator._start, threading.Event(), []

    def held_up(self: BackgroundEvaluator) -> None:
        was_told.append(may_start.wait(120))
        start(self)

    monkeypatch.setattr(BackgroundEvaluator, "_start", held_up)
    run = probes.workspace(tmp_path / "run", *BACKGROUND)
    at_step(run, 75, may_start.set)  # the first evaluation is due at step 50
    run.run()
    run.close()
    assert was_told == [True]
    assert_same(tmp_path / "run", straight)


def test_training_goes_on_meanwhile_and_waits_for_the_previous_evaluation(
    tmp_path: Path, straight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, waited = BackgroundEvaluator.wait, []
    run = probes.workspace(tmp_path / "run", *BACKGROUND)

    def later(self: BackgroundEvaluator) -> Any:
        waited.append(run.step)
        return wait(self)

    monkeypatch.setattr(BackgroundEvaluator, "has_answered", False)
    monkeypatch.setattr(BackgroundEvaluator, "wait", later)
    run.run()
    run.close()
    assert waited == [100, 150, 200, 200]
    assert_same(tmp_path / "run", straight)


def test_a_run_killed_during_an_evaluation_ends_in_the_same_bytes(
    tmp_path: Path, straight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(BackgroundEvaluator, "begin", lambda *_: None)  # nothing evaluates, so no answer comes
        dying = probes.workspace(tmp_path / "run", *BACKGROUND)
        die_in(dying, 79)
    assert not (tmp_path / "run/eval.csv").exists()
    go_on(tmp_path / "run")
    assert_same(tmp_path / "run", straight)


def test_a_pending_evaluation_can_be_made_in_the_foreground(
    tmp_path: Path, straight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(BackgroundEvaluator, "begin", lambda *_: None)
        die_in(probes.workspace(tmp_path / "run", *BACKGROUND), 79)
    go_on(tmp_path / "run", "eval_in_background=false")
    assert_same(tmp_path / "run", straight)


@pytest.mark.parametrize(
    ("number", "timeout_s", "said"),
    [
        (signal.SIGKILL, 60, "its process died"),
        (signal.SIGSTOP, 0.01, "its process gave no sign of life for env_timeout_s=0.01"),
    ],
    ids=["dies", "hangs"],
)
def test_if_the_process_dies_or_hangs_its_evaluation_is_repeated_here(
    tmp_path: Path,
    straight: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    processes: list[int],
    number: int,
    timeout_s: float,
    said: str,
) -> None:
    monkeypatch.setattr(background, "BEAT_S", 0.05)
    run = probes.workspace(tmp_path / "run", *BACKGROUND)
    assert run.evaluations.background is not None
    begin = BackgroundEvaluator.begin

    def begun(self: BackgroundEvaluator, step: int, weights: dict[str, Any]) -> None:
        if step == 100:
            self._timeout_s = timeout_s
            os.kill(self._process.pid, number)
        begin(self, step, weights)

    monkeypatch.setattr(BackgroundEvaluator, "begin", begun)
    run.run()
    run.close()
    assert_same(tmp_path / "run", straight)
    assert f"The evaluation at step 100 is repeated, and from now on training waits for evaluations: {said}" in _said(
        capsys
    )
    assert none_is_left(processes[0])


def test_a_run_that_may_be_pruned_waits_and_ends_with_the_row_that_decides(
    tmp_path: Path, processes: list[int], straight: Path
) -> None:
    asked: list[int] = []
    run = probes.workspace(tmp_path / "run", *BACKGROUND)

    def decide(step: int) -> bool:
        asked.append(step)
        assert (run.step, rows(tmp_path / "run/eval.csv")[-1]["step"]) == (step, str(step))
        return step == 100

    run.evaluations.prune = decide
    last_return = run.run()
    run.close()
    assert (asked, run.step, processes) == ([50, 100], 100, [])
    columns = [name for name in rows(straight / "eval.csv")[0] if name != "duration"]
    two, all_four = (rows(folder / "eval.csv") for folder in (tmp_path / "run", straight))
    assert [[row[name] for name in columns] for row in two] == [[row[name] for name in columns] for row in all_four[:2]]
    assert run_folder.finished(tmp_path / "run") == (100, last_return) and run_folder.was_pruned(tmp_path / "run")
    assert not run_folder.was_pruned(straight)


def _said(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr()
    return said.out + said.err


def test_an_error_in_the_process_is_reported_and_the_run_goes_on(
    tmp_path: Path, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The environment is registered in this process, but not in the evaluating one."""
    run = probes.train(tmp_path / "run", *BACKGROUND[1:], "env=ProbeDrawn-v0")
    assert run.step == 200
    assert (
        "is repeated, and from now on training waits for evaluations: UserError: env=ProbeDrawn-v0: no such"
        in _said(capsys)
    )
    assert (tmp_path / "run/eval.csv").read_text().count("\n") == 5


@pytest.mark.parametrize("at", [75, 100], ids=["while it trains", "while it waits"])
def test_a_signal_ends_both_processes_and_nothing_is_lost(
    tmp_path: Path, straight: Path, monkeypatch: pytest.MonkeyPatch, processes: list[int], at: int
) -> None:
    run = probes.workspace(tmp_path / "run", *BACKGROUND)
    with monkeypatch.context() as patched:
        patched.setattr(BackgroundEvaluator, "has_answered", False)
        if at == 100:
            patched.setattr(BackgroundEvaluator, "_ask", lambda *_: None)  # no answer comes, so the next one waits
            at_step(run, 99, lambda: threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start())
        else:
            at_step(run, at, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Stopped):  # before the grace period ends this process
            run.run()
        run.close()
    assert all(none_is_left(process) for process in processes)
    go_on(tmp_path / "run")
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
    assert not has_process("num_train_steps=10_000", "eval_in_background=false")
    with monkeypatch.context() as pooled:
        pooled.setenv("ENDS_WITH_PROCESS", "1")
        assert not has_process("num_train_steps=10_000")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert not has_process("num_train_steps=10_000") and has_process("eval_in_background=true")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("evaluator._target_=probes.ConstantEvaluator", "evaluator._target_=probes.ConstantEvaluator may want more"),
        ("agent._target_=probes.ActsItself", "ActsItself acts in its own way"),
    ],
)
def test_what_needs_more_than_a_policy_is_evaluated_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str, said: str
) -> None:
    run = probes.train(tmp_path / "run", *BACKGROUND, override, "checkpoint_frequency=0")
    assert f"Training waits for evaluations: {said}" in _said(capsys)
    assert run.evaluations.background is None and (tmp_path / "run/eval.csv").read_text().count("\n") == 5


def test_the_best_policy_is_kept(tmp_path: Path, straight: Path) -> None:
    rows = [line.split(",")[1:3] for line in (straight / "eval.csv").read_text().splitlines()[1:]]
    step, value = max(rows, key=lambda row: float(row[1]))
    policy, kept_step, kept_return = best.load(straight, "cpu")
    assert (kept_step, kept_return) == (int(step), float(value))
    evaluator = probes.workspace(tmp_path / "run", *FOREGROUND).evaluator
    assert isinstance(evaluator, Evaluator)
    returns = evaluator.evaluate(policy, kept_step).returns
    assert sum(returns) / len(returns) == kept_return
    # A policy that has changed is not loaded.
    path = straight / best.BEST / "policy.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    changed = tmp_path / "changed" / best.BEST
    changed.mkdir(parents=True)
    (changed / "policy.pt").write_bytes(data)
    (changed / "manifest.json").write_bytes((straight / best.BEST / "manifest.json").read_bytes())
    with pytest.raises(UserError, match="has changed since"):
        best.load(tmp_path / "changed", "cpu")


def test_a_best_policy_that_could_not_be_loaded_again_is_not_kept_and_a_line_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = probes.workspace(tmp_path / "run", *FOREGROUND).agent.policy
    policy.actor.recipe["target"] = "my_package.MyActor"
    kept = best.BestPolicy(tmp_path)
    capsys.readouterr()
    kept.keep(policy, 40, 1.0)
    kept.keep(policy, 70, 2.0)
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and said.startswith("checkpoints/best is not kept, nor policy.pt in checkpoints: ")
    assert "it needs my_package.MyActor, which is not one of this project's networks" in said
    assert not (tmp_path / best.BEST).exists()
    with pytest.raises(UserError, match=r"unless the actor has parts of a class outside of agent/"):
        best.load(tmp_path, "cpu")


def test_killed_between_two_files_the_previous_best_policy_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = probes.workspace(tmp_path, *FOREGROUND).agent.policy
    best.BestPolicy(tmp_path).keep(policy, 40, 1.0)
    with monkeypatch.context() as dying, torch.no_grad(), pytest.raises(Killed):
        next(policy.actor.parameters()).add_(1.0)
        replace = Path.replace
        dying.setattr(Path, "replace", lambda path, to: _die() if Path(to).suffix == ".pt" else replace(path, to))
        best.BestPolicy(tmp_path).keep(policy, 70, 2.0)
    assert best.load(tmp_path, "cpu")[1:] == (40, 1.0)
    load_policy(tmp_path / best.BEST / "policy.pt")
    best.BestPolicy(tmp_path).keep(policy, 100, 3.0)
    assert best.load(tmp_path, "cpu")[1:] == (100, 3.0)
    manifest = tmp_path / best.BEST / "manifest.json"
    manifest.write_text('{"manifest": {"step": 1, "return": NaN, "parts": {"policy": "another"}}}')
    with pytest.raises(UserError, match="has changed since"):  # NaN does not equal itself: no loop may wait for it
        best.load(tmp_path, "cpu")


def test_a_run_that_goes_back_also_goes_back_to_its_best_policy(tmp_path: Path) -> None:
    run = FOREGROUND
    whole = probes.train(tmp_path / "whole", *run, "keep_checkpoints=9").work_dir
    result = best.result_of(whole)
    assert result is not None and result[0] > 50
    for step in (30, 60, 120):  # before and after the first evaluation, and after the second
        gone_back = shutil.copytree(whole, tmp_path / f"from {step}")
        (gone_back / "finished.json").unlink()
        for path in checkpoint.newest_first(gone_back):
            if int(path.name.removeprefix("step_")) > step:
                shutil.rmtree(path)
        shortened = shutil.copytree(gone_back, tmp_path / f"shortened {step}")
        go_on(gone_back)
        assert_same(gone_back, whole)
        # What is not evaluated again is not the best.
        ended = go_on(shortened, f"num_train_steps={step}", "eval_frequency=1000")
        returns = {int(row["step"]): float(row["episode_reward"]) for row in rows(shortened / "eval.csv")}
        best_step, best_return = best.load(shortened, "cpu")[1:]
        assert best_return == returns[best_step] == max(returns.values())
        assert ended.summary()[0].endswith(f"; best {best_return:.1f}, at step {best_step}")


def _die() -> None:
    raise Killed


def test_the_best_policy_does_not_create_a_deleted_folder_again(
    tmp_path: Path, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best.BestPolicy(tmp_path / "gone").keep(best.load(straight, "cpu")[0], 40, 1.0)
    assert "could not be saved: No such file" in capsys.readouterr().err and not (tmp_path / "gone").exists()


def test_a_best_policy_that_cannot_be_written_is_reported_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(best, "plain_policy", lambda _: {})
    monkeypatch.setattr(best, "save_plain", full)
    best.BestPolicy(tmp_path).keep(None, 40, 1.0)  # type: ignore[arg-type]
    assert (
        capsys.readouterr().err == "The best policy so far, of step 40, could not be saved: No space left on device\n"
    )
    assert list((tmp_path / best.BEST).iterdir()) == []


def test_the_best_is_known_after_a_kill(tmp_path: Path, straight: Path) -> None:
    dying = probes.workspace(tmp_path / "run", *FOREGROUND)
    dying.progress.best_return = 1e9  # better than any to come
    with pytest.raises(Killed):
        die_then(dying)
    dying.close()
    ended = go_on(tmp_path / "run")
    assert ended.progress.best_return == 1e9 and "; best 1000000000.0" in ended.summary()[0]
    assert not (tmp_path / "run" / best.BEST).exists()
    # By a run that was killed before its next checkpoint.
    best.BestPolicy(tmp_path / "run").keep(ended.agent.policy, 70, 3.25)
    assert ended.summary()[0].endswith("; best 3.2, at step 70")


def die_then(dying: Any) -> None:
    def die() -> None:
        raise Killed

    at_step(dying, 50, die)
    dying.run()
