"""On a signal the run is saved, says so, and can be resumed."""

import errno
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probes
import psutil
import pytest
from runs import ONE_THREAD, ROOT, RUN, SILENT, assert_same, at_step, go_on, run_until

import plot
from launch import job
from run import stopping
from run.saving import folder as run_folder
from run.stopping import EXIT_SAVED, Stopped, Stopping

PROBE = ("env=ProbeTimeLimit-v0", *RUN)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGHUP, 75), (signal.SIGINT, 130)]
)
def test_a_signal_saves_the_step_and_ends_with_its_code(tmp_path: Path, number: int, code: int) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also if these tests run under nohup
    probes.train(tmp_path / "straight", *PROBE)
    run = probes.workspace(tmp_path / "run", *PROBE)
    at_step(run, 42, lambda: os.kill(os.getpid(), number))
    again = re.escape(shlex.quote(f"resume={tmp_path / 'run'}"))
    with pytest.raises(Stopped, match=f"at step 43.*continue with: python train.py {again}") as ended:
        run.run()
    run.close()
    assert ended.value.exit_code == code
    assert (tmp_path / "run/train.csv").read_text().splitlines()[-1].startswith("9,43,3.0")  # the cut episode's row
    assert go_on(tmp_path / "run").step == 160
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_a_second_sigterm_does_not_end_the_process_before_it_has_said_that_it_saved(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, *PROBE)
    close = run.logger.close

    def close_and_receive() -> None:
        close()
        os.kill(os.getpid(), signal.SIGTERM)

    run.logger.close = close_and_receive  # type: ignore[method-assign]
    at_step(run, 42, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Stopped, match="SIGTERM at step 43") as ended:
        run.run()
    run.close()
    assert ended.value.exit_code == 75


def test_a_signal_after_the_last_step_does_not_keep_the_run_from_being_finished(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, *PROBE)
    close = run.logger.close

    def close_and_receive() -> None:
        run.logger.close = close  # type: ignore[method-assign]
        close()
        os.kill(os.getpid(), signal.SIGTERM)

    run.logger.close = close_and_receive  # type: ignore[method-assign]
    with pytest.raises(Stopped, match="SIGTERM at step 160"):
        run.run()
    run.close()
    assert run_folder.finished(tmp_path, 160) is not None


def test_the_grace_period_ends_a_run_whose_messages_nobody_reads() -> None:
    code = "from settings.operating_system import begin_command; begin_command()\n"
    code += "from run.stopping import Stopping; Stopping(1)._give_up()"
    reads, writes = os.pipe()
    os.close(reads)
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ONE_THREAD, stderr=writes, check=False)
    os.close(writes)
    assert ended.returncode == EXIT_SAVED


HUNG = """
import os, signal
from functools import partial
import gymnasium as gym
from envs.processes import make_train_envs
from run.stopping import Stopping

if __name__ == "__main__":
    envs = make_train_envs(partial(gym.make, "Pendulum-v1"), 1, num_envs=2, asynchronous=True)
    print(*(process.pid for process in envs.processes), flush=True)
    os.kill(envs.processes[0].pid, signal.SIGSTOP)
    Stopping(1)._give_up()
"""


def test_a_process_that_exits_at_once_takes_hung_environments_with_it(tmp_path: Path) -> None:
    (tmp_path / "hung.py").write_text(HUNG)
    environment = {**ONE_THREAD, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, tmp_path / "hung.py"], env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    assert ended.returncode == EXIT_SAVED
    for process in map(int, ended.stdout.split()):
        while psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)  # polls another process


def test_ctrl_c_while_the_curves_are_drawn_is_reported_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plot, "draw_run", interrupted)
    run = probes.workspace(tmp_path, *PROBE, "save_figure=true")
    with pytest.raises(KeyboardInterrupt, match="interrupted after step 160"):
        run.run()
    run.close()
    assert run_folder.finished(tmp_path, 160) is not None


def test_a_finished_run_restores_what_signals_do(tmp_path: Path) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    probes.train(tmp_path, *PROBE)
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_log_that_cannot_be_written_changes_no_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = probes.workspace(tmp_path, *PROBE)
    monkeypatch.setattr(run.loop, "end_unfinished_episodes", refuse)
    at_step(run, 42, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Stopped, match="SIGTERM at step 43") as ended:
        run.run()
    run.close()
    assert ended.value.exit_code == 75


@pytest.mark.parametrize("step", [70, 160])
def test_an_evaluation_is_cut_short_and_made_again(tmp_path: Path, step: int) -> None:
    run = (*PROBE, "num_eval_episodes=3")
    probes.train(tmp_path / "straight", *run)
    stopped = probes.workspace(tmp_path / "run", *run)
    evaluate, finished = stopped.evaluations.evaluator.evaluate, []

    def signalled(agent: Any, at: int) -> Any:
        if at == step:
            os.kill(os.getpid(), signal.SIGTERM)
        finished.append(at)
        return evaluate(agent, at)

    stopped.evaluations.evaluator.evaluate = signalled  # type: ignore[method-assign]
    with pytest.raises(Stopped, match=f"SIGTERM at step {step}"):
        stopped.run()
    stopped.close()
    assert step not in finished
    go_on(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_under_nohup_a_closed_terminal_changes_nothing(tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    run = probes.workspace(tmp_path, *PROBE)
    at_step(run, 42, lambda: os.kill(os.getpid(), signal.SIGHUP))
    run.run()
    run.close()
    assert run.step == 160


class Instantly(threading.Timer):
    """A timer of the grace period that fires at once."""

    def start(self) -> None:
        self.function()


def test_the_grace_period_ends_a_step_that_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "Timer", Instantly)
    monkeypatch.setattr(stopping, "_exit", exits := [].append)
    with Stopping(grace_s=7):
        os.kill(os.getpid(), signal.SIGTERM)
    assert exits.__self__ == [75]
    assert capsys.readouterr().err == "not saved within grace_s=7; the last checkpoint stays\n"


def test_a_second_ctrl_c_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(stopping, "_exit", codes.append)
    with Stopping(grace_s=7) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal_number == signal.SIGINT and not codes
        os.kill(os.getpid(), signal.SIGINT)
    assert codes == [stopping.EXIT_INTERRUPTED]


def test_under_submitit_its_own_handler_queues_the_job_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[bool] = []

    def requeue(number: int, frame: Any) -> None:
        queued.append((tmp_path / "checkpoints/step_43/manifest.json").exists())
        raise SystemExit(-1)

    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    before = signal.signal(signal.SIGUSR2, requeue)
    term = signal.signal(signal.SIGTERM, lambda *_: None)  # submitit's handler ignores SIGTERM, too
    try:
        run = probes.workspace(tmp_path, *PROBE)
        at_step(run, 20, lambda: os.kill(os.getpid(), signal.SIGTERM))
        at_step(run, 42, lambda: os.kill(os.getpid(), signal.SIGUSR2))
        with pytest.raises(SystemExit):
            run.run()
        run.close()
    finally:
        signal.signal(signal.SIGUSR2, before), signal.signal(signal.SIGTERM, term)
    assert queued == [True]


def test_a_sweep_runs_what_is_missing_and_goes_on_with_what_was_cut_off(
    tmp_path: Path, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    run = ("env=Pendulum-v1", *RUN)
    for seed in (2, 3):
        probes.train(tmp_path / f"straight-{seed}", *run, f"seed={seed}")
    probes.train(tmp_path / "sweep/seed-1", *run, "seed=1")
    run_until(tmp_path / "sweep/seed-2", 100, *run, "seed=2")
    finished = {path: path.stat().st_mtime_ns for path in (tmp_path / "sweep/seed-1").rglob("*") if path.is_file()}
    sweep = ("-m", "resume=auto", f"hydra.sweep.dir={tmp_path / 'sweep'}", "seed=1,2,3")
    capsys.readouterr()
    assert command(*sweep, *probes.SMALL, *run, *SILENT) == 0
    said = capsys.readouterr().out
    assert "seed-1: finished at step 160" in said and "Continuing from" in said
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    for seed in (2, 3):
        assert_same(tmp_path / f"sweep/seed-{seed}", tmp_path / f"straight-{seed}")


def test_a_sweep_that_is_stopped_says_how_it_goes_on(
    tmp_path: Path, command: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(*args: Any, **kwargs: Any) -> float:
        raise Stopped("SIGTERM at step 20", EXIT_SAVED)

    monkeypatch.setattr(job, "train", stops)
    sweep = ("-m", f"hydra.sweep.dir={tmp_path / 'sweep'}", "seed=1,2", "env=Pendulum-v1")
    assert command(*sweep, *probes.SMALL, *SILENT) == EXIT_SAVED
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-2:] == [
        "SIGTERM at step 20",
        f"to continue the sweep, repeat the same command with resume=auto {shlex.quote(sweep[1])}",
    ]
