"""On a signal the run is saved, says so, and can be resumed."""

import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import probes
import pytest
from runs import RUN, assert_same, at_step, go_on

from run import stopping
from run.stopping import Stopped, Stopping
from run.workspace import read_finished

PROBE = ("env=ProbeTimeLimit-v0", *RUN)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 75),
        (signal.SIGINT, 130),
        *(pytest.param(number, 75, marks=pytest.mark.thorough) for number in (signal.SIGUSR1, signal.SIGHUP)),
    ],
)
def test_a_signal_saves_the_step_and_ends_with_its_code(tmp_path: Path, number: int, code: int) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also if these tests run under nohup
    probes.train(tmp_path / "straight", *PROBE)
    run = probes.workspace(tmp_path / "a run", *PROBE)
    at_step(run, 42, lambda: os.kill(os.getpid(), number))
    again = re.escape(shlex.quote(f"resume={tmp_path / 'a run'}"))
    with pytest.raises(Stopped, match=f"at step 43; continue with: python train.py {again}") as ended:
        run.run()
    assert ended.value.exit_code == code
    assert (tmp_path / "a run/train.csv").read_text().splitlines()[-1].startswith("9,43,3.0")  # the cut episode's row
    assert go_on(tmp_path / "a run").step == 160
    assert_same(tmp_path / "a run", tmp_path / "straight")


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
    assert read_finished(tmp_path) is not None


def test_a_finished_run_restores_what_signals_do(tmp_path: Path) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    probes.train(tmp_path, *PROBE)
    assert [signal.getsignal(number) for number in numbers] == before


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
    assert step not in finished
    go_on(tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_under_nohup_a_closed_terminal_changes_nothing(tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    run = probes.workspace(tmp_path, *PROBE)
    at_step(run, 42, lambda: os.kill(os.getpid(), signal.SIGHUP))
    run.run()
    assert run.step == 160


def test_a_second_ctrl_c_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(stopping.os, "_exit", codes.append)
    with Stopping() as stop:
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
    finally:
        signal.signal(signal.SIGUSR2, before), signal.signal(signal.SIGTERM, term)
    assert queued == [True]
