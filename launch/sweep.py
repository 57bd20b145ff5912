"""A sweep's work around each training, and its report."""

import itertools
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from envs.errors import FAULTS
from files.locks import lock
from files.writing import make_folder, open_in_place
from launch import own_process
from launch.launchers import JOBLIB, RAY
from run.saving import folder as run_folder
from run.stopping import Requeued
from settings.schema import Settings
from utils import EnvError, RunError, UserError, one_line

# Launchers whose worker processes serve one run after another. There each run gets a process of its own: a crash ends
# only that run, and threads and GPUs are set before torch is imported.
POOLS = (JOBLIB, RAY)
LOCK_WAIT_S = 120  # longer than a lost node's run may take to save (grace_s), or a file server to give up its lock


def guarded(work: Callable[[], float], folder: Path, overrides: list[str]) -> float:
    """Executes one run of a sweep. A failure is recorded in the run's folder, and does not end the sweep.

    Args:
        overrides: the overrides that distinguish the run from the others, for the report.

    Returns:
        The mean return of the final evaluation; nan if the run failed.

    Raises:
        RunError: if the run failed and its folder, which would record that, is gone.
    """
    run_folder.unmark_failed(folder)
    try:
        return work()
    except Requeued:
        raise
    except FAULTS as error:
        if not isinstance(error, UserError | RunError):
            traceback.print_exc()
        elif isinstance(error, EnvError):
            print(error.trace, end="", file=sys.stderr)
        reason = str(error) if isinstance(error, UserError | RunError) else f"{type(error).__name__}: {error}"
        try:
            run_folder.mark_failed(folder, overrides, one_line(reason))
        except FileNotFoundError:  # the folder is gone
            raise RunError(f"{' '.join(overrides)}: {one_line(reason)}") from error
        return math.nan


def in_own_process(
    arguments: list[str], folder: Path, cfg: Settings, launcher: str, sweep: Path, environment: dict[str, str]
) -> float:
    """Runs `python train.py <arguments>` as one run of a pool, in the run's folder; returns its final return.

    Raises:
        RunError: with its last line or the signal that killed it; also if it exited with 0 before its last step.
    """
    run_folder.wait_until_free(folder, LOCK_WAIT_S)  # a lost node's run may still be saving
    with slot(sweep / ".slots") as number:
        gpu = gpu_of(number) if launcher == JOBLIB and cfg.device in ("auto", "cuda") else None  # Ray assigns GPUs
        own_process.run(arguments, folder, environment if gpu is None else {**environment, "CUDA_VISIBLE_DEVICES": gpu})
    finished = run_folder.finished(folder, cfg.num_train_steps)
    if finished is None:
        raise RunError("its process ended with exit code 0 before the run was finished")
    return finished[1]


@contextmanager
def slot(folder: Path) -> Iterator[int]:
    """Reserves the lowest number that no other run in `folder` has, until the block, or the process, ends."""
    make_folder(folder)
    for number in itertools.count():
        descriptor = open_in_place(folder / str(number), os.O_RDWR | os.O_CREAT)
        try:
            lock(descriptor)
            yield number
            return
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)


def gpu_of(number: int) -> str | None:
    """Returns CUDA_VISIBLE_DEVICES for the run in a slot: slots get the GPUs in turn; None if there is no GPU."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = [str(index) for index in range(torch.cuda.device_count())] if named is None else named.split(",")
    return gpus[number % len(gpus)] if torch.cuda.device_count() else None
