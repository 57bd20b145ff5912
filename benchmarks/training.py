"""Runs whole trainings, one per core, and reads their returns over steps and over seconds of training."""

import argparse
import hashlib
import os
import queue
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import stdev
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from study.runs import read

ROOT = Path(__file__).resolve().parents[1]

# With these overrides, only training and evaluations take time.
BARE = ("device=cpu", "num_threads=1", "save_video=false", "save_figure=false", "checkpoint_frequency=0")


def options(doc: str, tasks: Sequence[str], seeds: Sequence[int] = (1, 2, 3)) -> argparse.ArgumentParser:
    """Returns a parser with the options --tasks and --seeds."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=tasks)
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds)
    return parser


class Job(NamedTuple):
    """A training run as a command."""

    folder: Path
    command: list[str]  # writes the folder
    result: str = "finished.json"  # a file or folder in `folder` that exists once the command is done
    resumes: bool = False  # whether the command continues an interrupted run


def done(job: Job) -> bool:
    """Returns whether the job has finished with its present command and the present YAML files."""
    return (job.folder / job.result).exists() and recorded(job) == made_by(job)


def recorded(job: Job) -> str:
    """Returns the recorded `made_by` of the run in the job's folder; empty if there is none."""
    record = record_of(job)
    return record.read_text(encoding="utf-8") if record.exists() else ""


def record_of(job: Job) -> Path:
    return job.folder.with_suffix(".made_by")


def made_by(job: Job) -> str:
    """Returns the command and a digest of the YAML files that it reads."""
    files = sorted((ROOT / "config").rglob("*.yaml"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return f"{shlex.join(['python', *job.command[1:]])}\nconfig {digest}\n"  # without the path of the interpreter


def ours(
    folder: Path,
    task: str,
    seed: int,
    overrides: Sequence[str],
    checkpoint_frequency: int = 0,
    keep_checkpoints: int = 1,
) -> Job:
    """Returns a job for train.py; if it writes checkpoints, it can be interrupted and continued."""
    run = [f"env={task}", f"seed={seed}", *overrides, *BARE, f"hydra.run.dir={folder}"]
    if checkpoint_frequency:
        run += [f"checkpoint_frequency={checkpoint_frequency}", f"keep_checkpoints={keep_checkpoints}", "resume=auto"]
    return Job(folder, [sys.executable, "train.py", *run], resumes=checkpoint_frequency > 0)


def finish(jobs: Sequence[Job], after: Callable[[int], object] = lambda index: None) -> None:
    """Runs the jobs that are not done, in order, as many at a time as there are cores, each bound to one core.

    Args:
        jobs: the runs.
        after: called with the index of each finished job, earlier ones included, one call at a time.

    Raises:
        RuntimeError: a job failed. After a failure no job is started, and running ones finish first.
    """
    cores: queue.Queue[int] = queue.Queue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)
    failed: list[str] = []
    lock = threading.Lock()

    def run_if_missing(index: int) -> None:
        job = jobs[index]
        if not failed and not done(job):
            run(job)
        if done(job):
            with lock:
                after(index)

    def run(job: Job) -> None:
        core = cores.get()
        if not job.resumes or recorded(job) != made_by(job):
            shutil.rmtree(job.folder, ignore_errors=True)
        log = job.folder.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        record_of(job).write_text(made_by(job), encoding="utf-8")
        began_s = time.perf_counter()
        try:
            with log.open("a" if job.resumes else "w") as file:
                bound = ["taskset", "-c", str(core), *job.command]
                code = subprocess.run(bound, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT).returncode
        finally:
            cores.put(core)
        if code:
            failed.append(str(log))
            if not job.resumes:
                record_of(job).unlink()
        print(f"{job.folder.name}: exit code {code}, {time.perf_counter() - began_s:.0f} s", flush=True)

    with ThreadPoolExecutor(cores.qsize()) as pool:
        list(pool.map(run_if_missing, range(len(jobs))))
    if failed:
        raise RuntimeError(f"a run failed; its output is in {', '.join(failed)}")


class Curve(NamedTuple):
    """The evaluations of a run: environment steps, seconds of training until then, mean returns."""

    steps: list[float]
    seconds: list[float]
    returns: list[float]


def curve(folder: Path) -> Curve:
    """Reads the evaluations of a run; its seconds are the training episodes' durations, without evaluations."""
    training, evaluations = read(folder / "train.csv"), read(folder / "eval.csv")
    episodes = list(zip(*training["duration"], strict=True))
    steps, returns = evaluations["episode_reward"]
    return Curve(steps, [sum(taken for at, taken in episodes if at <= step) for step in steps], returns)


def at(run: Curve, seconds: float) -> float:
    """Returns the return after `seconds` of training, interpolated between evaluations; 0 at the start."""
    return float(np.interp(seconds, [0.0, *run.seconds], [0.0, *run.returns]))


def mean_and_spread(values: Sequence[float]) -> str:
    """Formats mean and standard deviation for a table; a single value has no standard deviation."""
    return f"{np.mean(values):.0f} ± {stdev(values):.0f}" if len(values) > 1 else f"{values[0]:.0f}"
