"""Sweeps through the real engines, started outside the checkout: joblib, submitit's local executor, Ray."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import probes
import psutil
import pytest
from runs import ROOT, assert_same, run_command

from run.checkpoint import list_checkpoints

pytestmark = pytest.mark.cluster
no_ray = pytest.mark.skipif(sys.version_info >= (3, 14), reason="Ray's launcher for Hydra fails on Python 3.14")
RUN = (
    *("env=Pendulum-v1", *probes.SMALL, "agent.critic.hidden_dim=8", "agent.actor.hidden_dim=8"),
    *("num_train_steps=1500", "checkpoint_frequency=100", "num_eval_episodes=1", "num_threads=1"),
)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Returns a function that gives the folder of an undisturbed run, trained once per seed."""
    return cache(lambda seed: probes.train(tmp_path_factory.mktemp("straight"), *RUN, f"seed={seed}").work_dir)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "train.py"), "-m", *arguments, "hydra.sweep.dir=sw"]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=folder, start_new_session=True, **output)  # type: ignore[call-overload, no-any-return]


def wait_for_checkpoint(run: Path, sweep: subprocess.Popen[str]) -> psutil.Process:
    """Returns the process that works in a run's folder, once it has written a checkpoint after that of its start."""
    while len(list_checkpoints(run)) < 2:
        assert sweep.poll() is None, sweep.communicate()[0]
        time.sleep(0.01)  # polls another process
    processes, lock = psutil.Process(sweep.pid).children(recursive=True), str((run / ".lock").resolve())
    return next(process for process in processes if lock in [file.path for file in process.open_files()])


@pytest.mark.parametrize("ended", ["worker", "command"])
def test_joblibs_sweep_goes_on_after_a_signal(tmp_path: Path, straight: Callable[[int], Path], ended: str) -> None:
    sweep = ("hydra/launcher=this_machine", "hydra.launcher.n_jobs=2", *RUN, "seed=1,2,3")
    running = start(tmp_path, *sweep)
    worker = wait_for_checkpoint(tmp_path / "sw/seed-1", running)
    worker.kill() if ended == "worker" else running.terminate()
    printed, _ = running.communicate(timeout=300)  # which also waits for the workers
    assert running.returncode == (3 if ended == "worker" else 130), printed
    again = run_command(tmp_path, "-m", *sweep, "hydra.sweep.dir=sw", "resume=auto")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "3 of 3: seed-" in again.stdout
    for seed in (1, 2, 3):
        assert_same(tmp_path / f"sw/seed-{seed}", straight(seed))


def test_submitit_a_preempted_run_is_queued_again_and_goes_on(tmp_path: Path, straight: Callable[[int], Path]) -> None:
    running = start(tmp_path, "hydra/launcher=slurm_local", *RUN, "seed=1,2")
    wait_for_checkpoint(tmp_path / "sw/seed-1", running).send_signal(signal.SIGUSR2)
    printed, _ = running.communicate()
    assert running.returncode == 0, printed
    out = "".join(path.read_text() for path in tmp_path.glob("sw/.submitit/*/*.out"))
    assert re.search(r"SIGUSR2 at step (\d+); continue with", out) and "Continuing from" in out
    for seed in (1, 2):
        assert_same(tmp_path / f"sw/seed-{seed}", straight(seed))


@no_ray
def test_ray_trains_the_runs_of_a_sweep(tmp_path: Path, straight: Callable[[int], Path]) -> None:
    sweep = ("hydra/launcher=cluster", "hydra.launcher.ray.init.address=local", *RUN, "seed=1,2")
    running = start(tmp_path, *sweep)
    printed, _ = running.communicate()
    assert running.returncode == 0, printed
    for seed in (1, 2):
        assert_same(tmp_path / f"sw/seed-{seed}", straight(seed))
