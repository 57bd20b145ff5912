"""Sweeps through the real engines, started outside the checkout: joblib, submitit's local executor, a Ray cluster."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import probes
import psutil
import pytest
from runs import assert_same, run_command

from launch import own_process
from run.checkpoint import list_checkpoints
from run.saving import folder as run_folder

pytestmark = pytest.mark.cluster
no_ray = pytest.mark.skipif(sys.version_info >= (3, 14), reason="Ray's launcher for Hydra fails on Python 3.14")
RUN = (
    *("env=Pendulum-v1", *probes.SMALL, "agent.critic.hidden_dim=8", "agent.actor.hidden_dim=8"),
    *("num_train_steps=1000", "checkpoint_frequency=100", "num_eval_episodes=1"),
)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns a function that gives the folder of an undisturbed run, trained once per seed and `num_threads`."""
    made: dict[tuple[int, int], Path] = {}

    def folder(seed: int, num_threads: int = 1) -> Path:
        if (seed, num_threads) not in made:
            path = made[seed, num_threads] = tmp_path_factory.mktemp(f"straight-{num_threads}") / f"seed-{seed}"
            probes.train(path, *RUN, f"seed={seed}", f"num_threads={num_threads}")
        return made[seed, num_threads]

    return folder


def start(folder: Path, *arguments: str, alone: bool = False) -> subprocess.Popen[str]:
    """Starts a sweep; `alone`, in a process group of its own."""
    command = [sys.executable, str(own_process.TRAIN.parent / "train.py"), "-m", *arguments]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=alone
    )


def process_past_a_checkpoint(run: Path, sweep: subprocess.Popen[str]) -> psutil.Process:
    """Returns the process that works in a run's folder, once it has written a checkpoint after that of its start."""
    while len(list_checkpoints(run)) < 2:
        assert sweep.poll() is None, sweep.communicate()[0]
        assert run_folder.finished(run) is None
        time.sleep(0.01)  # polls another process
    return psutil.Process(int((run / ".lock").read_text().split()[0]))


def test_joblib_shares_the_machine_and_outlives_a_killed_run(
    tmp_path: Path, straight: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    sweep = ("hydra/launcher=this_machine", "hydra.launcher.n_jobs=2", *RUN, "seed=1,2,3", "hydra.sweep.dir=sw")
    running = start(tmp_path, *sweep)
    process_past_a_checkpoint(tmp_path / "sw/seed-1", running).send_signal(signal.SIGKILL)
    said, _ = running.communicate()
    assert running.returncode == 3, said
    assert "1 of the sweep's runs failed:\n  seed=1: killed by SIGKILL\n" in said
    for seed in (2, 3):
        config = (tmp_path / f"sw/seed-{seed}/config.yaml").read_text()
        assert f"num_threads: {threads}\n" in config
    again = run_command(tmp_path, "-m", *sweep, "resume=auto")
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count("nothing is left to do") == 2
    assert "Continuing from" in (tmp_path / "sw/seed-1/console.txt").read_text()
    assert_same(tmp_path / "sw/seed-1", straight(1, threads))


def suspended_runs(sweep: subprocess.Popen[str], folder: Path) -> list[psutil.Process]:
    """Returns the processes of the seeds 1 and 2, each suspended after its first checkpoint but that of its start."""
    runs: dict[int, psutil.Process] = {}
    while len(runs) < 2:
        for seed in {1, 2} - runs.keys():
            if len(list_checkpoints(folder / f"seed-{seed}")) >= 2:
                runs[seed] = process_past_a_checkpoint(folder / f"seed-{seed}", sweep)
                runs[seed].suspend()
        assert sweep.poll() is None, sweep.communicate()[0]
        time.sleep(0.01)  # polls other processes
    return [runs[1], runs[2]]


def resume(runs: list[psutil.Process]) -> None:
    for run in runs:
        run.resume()


def wait_for_sigterm(runs: list[psutil.Process]) -> None:
    """Waits until suspended processes have a SIGTERM pending."""
    pending = re.compile(r"(?:SigPnd|ShdPnd):\s*(\w+)")
    for run in runs:
        while not any(int(mask, 16) >> 14 & 1 for mask in pending.findall(Path(f"/proc/{run.pid}/status").read_text())):
            time.sleep(0.01)  # polls another process


def signal_sweep(running: subprocess.Popen[str], number: int) -> None:
    """Sends a signal, and waits until the sweep has sent one to its runs."""
    assert running.stdout is not None
    running.send_signal(number)
    while "the runs are saving; a second Ctrl-C does not wait for them" not in (line := running.stdout.readline()):
        assert line, "the sweep ended"


def assert_saved(folder: Path) -> None:
    for seed in (1, 2):
        assert not (folder / f"seed-{seed}/failed.json").exists()
        assert "SIGTERM at step" in (folder / f"seed-{seed}/console.txt").read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_joblib_lets_runs_save_before_a_signal_ends_the_sweep(
    tmp_path: Path, straight: Callable[..., Path], number: int, code: int
) -> None:
    sweep = ("hydra/launcher=this_machine", "hydra.launcher.n_jobs=2", *RUN, "seed=1,2,3", "hydra.sweep.dir=sw")
    running = start(tmp_path, *sweep)
    runs = suspended_runs(running, tmp_path / "sw")
    signal_sweep(running, number)
    resume(runs)
    said, _ = running.communicate()
    assert running.returncode == code, said
    assert f"{signal.Signals(number).name} ended the sweep, after its runs had saved\nto continue the sweep, " in said
    assert not any(run.is_running() and run.status() != psutil.STATUS_ZOMBIE for run in runs)
    assert_saved(tmp_path / "sw")
    assert not list_checkpoints(tmp_path / "sw/seed-3")
    again = run_command(tmp_path, "-m", *sweep, "resume=auto")
    assert again.returncode == 0, again.stdout + again.stderr
    assert_same(tmp_path / "sw/seed-2", straight(2))


def test_joblibs_runs_save_though_a_second_ctrl_c_does_not_wait_for_them(tmp_path: Path) -> None:
    sweep = ("hydra/launcher=this_machine", "hydra.launcher.n_jobs=2", *RUN, "seed=1,2", "hydra.sweep.dir=sw")
    running = start(tmp_path, *sweep)
    runs = suspended_runs(running, tmp_path / "sw")
    signal_sweep(running, signal.SIGINT)
    running.send_signal(signal.SIGINT)
    assert running.wait() == 130
    resume(runs)
    psutil.wait_procs(runs)
    assert_saved(tmp_path / "sw")


def test_joblibs_runs_save_though_all_its_processes_are_told_to_end_twice(tmp_path: Path) -> None:
    """As `timeout`, systemd and Slurm do."""
    sweep = ("hydra/launcher=this_machine", "hydra.launcher.n_jobs=2", *RUN, "seed=1,2,3", "hydra.sweep.dir=sw")
    running = start(tmp_path, *sweep, alone=True)
    runs = suspended_runs(running, tmp_path / "sw")
    for _ in range(2):
        os.killpg(running.pid, signal.SIGTERM)
        wait_for_sigterm(runs)
    assert running.poll() is None
    resume(runs)
    said, _ = running.communicate()
    assert running.returncode == 75, said
    assert "SIGTERM ended the sweep, after its runs had saved\n" in said
    assert_saved(tmp_path / "sw")
    assert not list_checkpoints(tmp_path / "sw/seed-3")


def test_joblibs_runs_save_though_nobody_reads_what_the_sweep_prints(tmp_path: Path) -> None:
    """As with `2>&1 | tee log`, which the same Ctrl-C ends."""
    sweep = ("hydra/launcher=this_machine", "hydra.launcher.n_jobs=2", *RUN, "seed=1,2", "hydra.sweep.dir=sw")
    running = start(tmp_path, *sweep)
    runs = suspended_runs(running, tmp_path / "sw")
    assert running.stdout is not None
    running.stdout.close()
    running.send_signal(signal.SIGINT)
    wait_for_sigterm(runs)
    resume(runs)
    assert running.wait() == 130
    assert_saved(tmp_path / "sw")


def test_joblibs_runs_save_if_the_sweep_is_killed(tmp_path: Path) -> None:
    sweep = ("hydra/launcher=this_machine", "hydra.launcher.n_jobs=2", *RUN, "seed=1,2", "hydra.sweep.dir=sw")
    running = start(tmp_path, *sweep)
    runs = suspended_runs(running, tmp_path / "sw")
    workers = [psutil.Process(run.ppid()) for run in runs]
    running.kill()
    psutil.wait_procs(workers)
    resume(runs)
    psutil.wait_procs(runs)
    assert_saved(tmp_path / "sw")


def test_joblib_runs_a_packages_environments_in_a_folder_with_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(probes.__file__).parent))
    envs = "env=probes:ProbeTimeLimit-v0,probes:ProbeFaulty-v0"
    sweep = ("hydra/launcher=this_machine", *RUN, "num_train_steps=200", envs, "hydra.sweep.dir=s w,(1)")
    names = ("env-probes_ProbeTimeLimit-v0__experiment-a b", "env-probes_ProbeFaulty-v0__experiment-a b")
    for again in ((), ("resume=auto",)):
        running = start(tmp_path, *sweep, "experiment=choice('a b')", *again)
        said, _ = running.communicate()
        assert running.returncode == 3, said
        assert "1 of the sweep's runs failed:\n  env=probes:ProbeFaulty-v0 experiment=a b: env=probes:Probe" in said
        assert "resume=auto 'hydra.sweep.dir=" in said
        assert said.count("nothing is left to do") == (1 if again else 0)
        assert {path.parent.name for path in tmp_path.glob("s w,(1)/*/finished.json")} == {names[0]}
    console = (tmp_path / "s w,(1)" / names[1] / "console.txt").read_text()
    assert console.count('raise ValueError("lost\\nits way")') == 2


def test_submitit_a_preempted_run_is_queued_again_and_goes_on(tmp_path: Path, straight: Callable[..., Path]) -> None:
    running = start(tmp_path, "hydra/launcher=slurm_local", *RUN, "seed=1,2", "hydra.sweep.dir=sw")
    process_past_a_checkpoint(tmp_path / "sw/seed-1", running).send_signal(signal.SIGUSR2)
    said, _ = running.communicate()
    assert running.returncode == 0, said
    out, err = (
        "".join(path.read_text() for path in tmp_path.glob(f"sw/.submitit/*/*.{kind}")) for kind in ("out", "err")
    )
    step = re.search(r"SIGUSR2 at step (\d+); continue with", out)
    assert step and f"Continuing from {tmp_path}/sw/seed-1/checkpoints/step_{step[1]}" in out
    assert "Requeued job" in out + err
    for seed in (1, 2):
        assert_same(tmp_path / f"sw/seed-{seed}", straight(seed))


@no_ray
def test_ray_a_lost_nodes_runs_go_on_elsewhere(tmp_path: Path, straight: Callable[..., Path]) -> None:
    script = own_process.TRAIN.parent / "benchmarks/lost_node.py"
    command = [sys.executable, str(script), "--cpus=1", *RUN, "seed=1,2,3,4"]
    ended = subprocess.run([*command, "hydra.sweep.dir=sw"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for seed in (1, 2, 3, 4):
        assert_same(tmp_path / f"sw/seed-{seed}", straight(seed))
    (killed,) = re.findall(r"killed the second node, with (.*)", ended.stdout)
    went_on = [path.parent.name for path in tmp_path.glob("sw/*/console.txt") if "Continuing" in path.read_text()]
    assert went_on and set(went_on) <= set(killed.split(", "))


@no_ray
def test_ray_no_cluster_is_one_line_and_nothing_is_created(tmp_path: Path) -> None:
    nobody = "hydra.launcher.ray.init.address=127.0.0.1:1"
    ended = run_command(tmp_path, "-m", "hydra/launcher=cluster", nobody, *RUN, "seed=1,2")
    assert ended.returncode == 2
    assert "train.py: hydra.launcher.ray.init.address=127.0.0.1:1: no Ray cluster answers there" in ended.stderr
    assert list(tmp_path.iterdir()) == []
