"""A pool worker's run as a child process: starts train.py by its path, and ends with the worker that wants it."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from files.locks import lock
from files.reading import NO_LIMIT, open_file
from files.writing import append_file, make_folder, open_in_place
from launch.launchers import JOBLIB, RAY
from launch.pool_worker import until_signal
from run.machine import PARENT
from run.saving import folder as run_folder
from settings.operating_system import terminate_with_parent
from settings.schema import Settings
from utils import RunError

# Launchers whose worker processes serve one run after another. There each run gets a process of its own: a crash ends
# only that run, and threads and GPUs are set before torch is imported.
POOLS = (JOBLIB, RAY)
LOCK_WAIT_S = 120  # longer than a lost node's run may take to save (grace_s), or a file server to give up its lock

TRAIN = Path(__file__).resolve().parents[1] / "train.py"
CONSOLE = "console.txt"
TAIL_BYTES = 2**20  # of a failed run's output, which is searched for the reason


def run_in_pool(
    arguments: list[str], folder: Path, cfg: Settings, launcher: str, sweep: Path, environment: dict[str, str]
) -> float:
    """Runs `python train.py <arguments>` as one run of a pool, in the run's folder; returns its final return.

    Raises:
        RunError: with its last line or the signal that killed it; also if it exited with 0 before its last step.
    """
    if launcher == JOBLIB:  # Ray's workers have handlers of their own
        terminate_with_parent()  # joblib's workers would outlive a killed sweep
        return until_signal(lambda: _run_in_slot(arguments, folder, cfg, launcher, sweep, environment))
    return _run_in_slot(arguments, folder, cfg, launcher, sweep, environment)


def _run_in_slot(
    arguments: list[str], folder: Path, cfg: Settings, launcher: str, sweep: Path, environment: dict[str, str]
) -> float:
    run_folder.wait_until_free(folder, LOCK_WAIT_S)  # a lost node's run may still be saving
    with slot(sweep / ".slots") as number:
        gpu = gpu_of(number) if launcher == JOBLIB and cfg.device in ("auto", "cuda") else None  # Ray assigns GPUs
        run(arguments, folder, environment if gpu is None else {**environment, "CUDA_VISIBLE_DEVICES": gpu})
    finished = run_folder.finished(folder, cfg.num_train_steps)
    if finished is None:
        raise RunError("its process ended with exit code 0 before the run was finished")
    return finished[1]


def run(arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Runs `python train.py <arguments>` to its end; its output is appended to `console.txt` in the folder.

    The variables of `environment` are added to this process's.

    Raises:
        RunError: with the last line it wrote, or the signal that killed it.
    """
    with append_file(folder / CONSOLE) as console:
        start = console.tell()
        command = [sys.executable, str(TRAIN), *arguments]
        environment = {**os.environ, **environment, PARENT: str(os.getpid())}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            env=environment,
            start_new_session=True,  # without a terminal's Ctrl-C: the sweep's process tells it to save
        )
        try:
            code = process.wait()
        except BaseException:  # this worker is being stopped: the run saves, within its grace_s
            process.terminate()
            process.wait()
            raise
    if code < 0:
        raise RunError(f"killed by {signal.Signals(-code).name}")
    if code:
        with open_file(folder / CONSOLE, NO_LIMIT) as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            written = file.read().decode(errors="replace")
        lines = [line.strip() for line in written.splitlines() if line.strip()]
        said = [line for line in lines if line.startswith("train.py: ")] or lines  # a traceback may follow it
        raise RunError(said[-1].removeprefix("train.py: ") if said else f"ended with exit code {code}")


@contextmanager
def slot(folder: Path) -> Iterator[int]:
    """Reserves the lowest number that no other run in `folder` has, until the block, or the process, ends."""
    make_folder(folder)
    for number in itertools.count():
        descriptor = open_in_place(folder / str(number), os.O_RDWR | os.O_CREAT)
        try:
            try:
                lock(descriptor)
            except BlockingIOError:
                continue
            except OSError as error:  # a file system without locks
                print(f"{folder}: runs may share a GPU, as nothing reserves its number ({error.strerror})")
            yield number
            return
        finally:
            os.close(descriptor)


def gpu_of(number: int) -> str | None:
    """Returns CUDA_VISIBLE_DEVICES for the run in a slot: slots get the GPUs in turn; None if there is no GPU."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = [str(index) for index in range(torch.cuda.device_count())] if named is None else named.split(",")
    return gpus[number % len(gpus)] if torch.cuda.device_count() else None


def end_with_parent() -> None:
    """In a run that a worker started, requests SIGTERM when that worker ends, so that the orphaned run saves and stops.

    Raises:
        SystemExit: if the worker has ended already.
    """
    parent = os.environ.get(PARENT)
    if parent is None:
        return
    terminate_with_parent()
    if os.getppid() != int(parent):
        sys.exit(f"process {parent}, which wanted this run, has ended")
