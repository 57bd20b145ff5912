"""Sweeps: a failed run is reported at the end and stops no other; a repeated command runs what is missing."""

import errno
import math
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probes
import pytest
import torch
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from lines import sweep_arguments
from runs import ROOT, SILENT, assert_same

from launch import command as command_line
from launch import job, launchers, own_process, pool_worker
from run.saving import folder as run_folder
from run.stopping import Requeued
from settings import resolvers
from settings.operating_system import usable_cpus
from utils import RunError, UserError

SWEEP = ("-m", "env=Pendulum-v1", *probes.SMALL, "checkpoint_frequency=40", "num_train_steps=160", *SILENT)


def test_a_failed_run_stops_no_other_and_is_reported_at_the_end(
    tmp_path: Path, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    batches = "hydra.sweeper.max_batch_size=1"  # after each batch the sweeper looks at the results
    arguments = (*SWEEP, "hydra.sweep.dir=sw", "agent.critic_lr=1e30,1e-3", "seed=1,2", batches)
    assert command(*arguments) == 3
    first, one, two, again = capsys.readouterr().err.splitlines()
    assert first == "train.py: 2 of the sweep's runs failed:"
    for seed, line in ((1, one), (2, two)):
        assert line.startswith(
            f"  agent.critic_lr=1e+30 seed={seed}: SACAgent.update_step: in the first update, train_"
        )
    assert shlex.split(again)[-2:] == ["resume=auto", f"hydra.sweep.dir={tmp_path / 'sw'}"]
    finished = sorted(path.parent.name for path in tmp_path.glob("sw/*/finished.json"))
    assert finished == ["agent.critic_lr-0.001__seed-1", "agent.critic_lr-0.001__seed-2"]

    assert command(*arguments) == 2
    assert "there are runs in it; choose another folder, or add resume=auto" in capsys.readouterr().err
    assert command(*SWEEP, "hydra.sweep.dir=sw", "agent.critic_lr=1e-3,1e30", "seed=2", "resume=auto") == 3
    printed = capsys.readouterr()
    assert printed.err.startswith("train.py: 1 of the sweep's runs failed:"), "the other's old failure is no news"
    assert printed.out.count("nothing is left to do") == 1


def test_a_failure_is_noted_and_what_begins_again_takes_the_note_away(tmp_path: Path, capsys: Any) -> None:
    def crash() -> float:
        raise ZeroDivisionError("division\nby zero")

    assert math.isnan(job.guarded(crash, tmp_path, ["seed=1"]))
    assert "Traceback" in capsys.readouterr().err  # not the user's mistake: its cause has to be found
    before = run_folder.failures(tmp_path.parent)
    assert run_folder.new_failures(tmp_path, {}) == ["seed=1: ZeroDivisionError: division by zero"]
    assert run_folder.new_failures(tmp_path, before) == []
    assert job.guarded(lambda: 7.0, tmp_path, ["seed=1"]) == 7.0
    assert run_folder.failures(tmp_path) == {}


def test_a_finished_run_is_no_failure_of_a_command_that_met_it(tmp_path: Path) -> None:
    run_folder.mark_failed(tmp_path, ["seed=1"], "another process is working in this folder")
    run_folder.mark_finished(tmp_path, 10, 1.0)
    assert run_folder.failure(tmp_path) is None


def test_a_failure_without_a_folder_to_note_it_in_is_raised(tmp_path: Path) -> None:
    def fail() -> float:
        (tmp_path / "run").rmdir()
        raise RunError("its folder was moved")

    (tmp_path / "run").mkdir()
    with pytest.raises(RunError, match=r"^seed=1: its folder was moved$"):
        job.guarded(fail, tmp_path / "run", ["seed=1"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", [KeyboardInterrupt, Requeued])
def test_ctrl_c_or_a_job_queued_again_is_no_runs_failure(tmp_path: Path, end: type[BaseException]) -> None:
    def interrupt() -> float:
        raise end

    with pytest.raises(end):
        job.guarded(interrupt, tmp_path, [])
    assert run_folder.failures(tmp_path) == {}


def test_a_launcher_that_breaks_off_leaves_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_off() -> None:
        run_folder.mark_failed(tmp_path, ["seed=2"], "too hot")
        raise OSError("no queue")

    monkeypatch.setattr(command_line, "hydra_main", break_off)
    with pytest.raises(RunError) as caught:
        command_line.run_sweep(tmp_path)
    first, _, failed, again = str(caught.value).splitlines()
    assert first == "the sweep broke off: no queue"
    assert failed == "  seed=2: too hot"
    assert shlex.split(again)[-1] == f"hydra.sweep.dir={tmp_path}"
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("launcher", "needs"),
    [("this_machine", "joblib"), ("slurm", "slurm"), ("slurm_local", "slurm"), ("cluster", "ray")],
)
def test_a_launchers_missing_package_is_one_line(
    launcher: str, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Plugins.instance()  # registers the installed launchers
    found = ConfigStore.instance().repo["hydra"]["launcher"]
    for name in ("joblib.yaml", "submitit_slurm.yaml", "submitit_local.yaml", "ray.yaml"):
        monkeypatch.delitem(found, name, raising=False)
    with pytest.raises(UserError, match=rf"not installed; pip install -e '\.\[{needs}\]'"):
        sweep_arguments("-m", f"hydra/launcher={launcher}", "seed=1,2")
    with pytest.raises(UserError, match="there are cluster, slurm, slurm_local, this_machine"):
        sweep_arguments("-m", "hydra/launcher=slrum", "seed=1,2")
    assert list(tmp_path.iterdir()) == []


def test_no_slurm_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="there is no sbatch here"):
        launchers.require({"_target_": launchers.SLURM})


def test_gpus_are_shared_out_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [own_process.gpu_of(number) for number in range(4)] == ["0", "1", "2", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7,6")
    assert [own_process.gpu_of(number) for number in range(4)] == ["5", "7", "6", "5"]
    assert resolvers.runs_at_once("auto") == 3
    assert resolvers.runs_at_once("cpu") == usable_cpus()
    count = 0
    assert own_process.gpu_of(0) is None
    assert resolvers.runs_at_once("auto") == usable_cpus()


def test_a_slot_is_one_runs_until_it_ends(tmp_path: Path) -> None:
    with own_process.slot(tmp_path) as first:
        with own_process.slot(tmp_path) as second:
            assert (first, second) == (0, 1)
        with own_process.slot(tmp_path) as third:
            assert third == 1
    with own_process.slot(tmp_path) as fourth:
        assert fourth == 0


def test_without_locks_runs_share_a_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(own_process, "lock", refuse)
    with own_process.slot(tmp_path) as first, own_process.slot(tmp_path) as second:
        assert (first, second) == (0, 0)
    assert "runs may share a GPU, as nothing reserves its number (No locks available)" in capsys.readouterr().out


def test_a_run_in_its_own_process_says_how_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def instead(*code: str) -> None:
        script = tmp_path / "script.py"
        script.write_text("\n".join(("import os, sys, signal", *code)))
        monkeypatch.setattr(own_process, "TRAIN", script)

    instead("print(sys.argv[1], os.environ['EXTRA'])")
    own_process.run(["seed=1"], tmp_path, {"EXTRA": "here"})
    assert (tmp_path / "console.txt").read_text() == "seed=1 here\n"
    instead("print('train.py: seed=x: wrong')", "sys.exit(2)")
    with pytest.raises(RunError, match=r"^seed=x: wrong$"):
        own_process.run([], tmp_path, {})
    instead("sys.exit(9)")
    with pytest.raises(RunError, match="ended with exit code 9"):
        own_process.run([], tmp_path, {})
    instead("os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(RunError, match="killed by SIGKILL"):
        own_process.run([], tmp_path, {})


def test_a_run_ends_with_the_worker_that_wanted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker starts a run and is killed. The kernel then signals the run, which here answers through a pipe."""
    run = (  # blocked before the import, as a thread that NumPy starts then would take the signal, and die of it
        "import os, signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM});"
        "from launch import own_process; own_process.end_with_parent(); os.write(1, b'begun\\n');"
        "signal.sigtimedwait({signal.SIGTERM}, 60) and os.write(1, b'told\\n')"
    )
    start = f"subprocess.Popen([sys.executable, '-c', {run!r}], env=environment).wait()"
    environment = "environment = os.environ | {own_process.PARENT: str(os.getpid())}"
    worker = f"import os, subprocess, sys; from launch import own_process; {environment}; {start}"
    process = subprocess.Popen([sys.executable, "-c", worker], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGKILL)
    assert process.stdout.readline() == "told\n"
    process.wait()
    monkeypatch.setenv(own_process.PARENT, str(os.getpid()))  # this process is not its own parent
    with pytest.raises(SystemExit, match="has ended"):
        own_process.end_with_parent()


def test_a_worker_between_two_runs_neither_ends_nor_waits_at_a_signal() -> None:
    """If it waited, the pool, which waits for it, would never end."""
    assert pool_worker.until_signal(lambda: 5.0) == 5.0
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
    assert pool_worker.until_signal(lambda: 6.0) == 6.0


def test_an_interrupted_worker_lets_its_run_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(subprocess.Popen):
        waits = 0
        ended: int | None = None

        def wait(self, timeout: float | None = None) -> int:
            self.waits += 1
            if self.waits == 1:
                raise KeyboardInterrupt
            Interrupted.ended = super().wait(timeout)
            return Interrupted.ended

    script = tmp_path / "script.py"
    script.write_text("import signal; signal.alarm(60); signal.pause()")
    monkeypatch.setattr(own_process, "TRAIN", script)
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        own_process.run([], tmp_path, {})
    assert Interrupted.ended == -signal.SIGTERM


def test_the_runs_of_a_sweep_are_those_of_single_commands(tmp_path: Path, command: Callable[..., int]) -> None:
    single = [text for text in SWEEP if not text.startswith(("-m", "hydra"))]
    probes.train(tmp_path / "straight", *single, "seed=2")
    assert command(*SWEEP, "hydra.sweep.dir=sw", "seed=1,2") == 0
    assert_same(tmp_path / "sw/seed-2", tmp_path / "straight")
