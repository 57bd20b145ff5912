"""Whole trainings for the benchmarks that compare them: one to a core, and their curves over seconds of training."""

import argparse
import datetime
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
from typing import Any, NamedTuple

import numpy as np
import torch
from machine import processor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from study.runs import read

ROOT = Path(__file__).resolve().parents[1]

# Nothing that takes time and is not training, evaluations apart.
BARE = ("device=cpu", "num_threads=1", "save_video=false", "save_figure=false", "checkpoint_frequency=0")


def options(doc: str, tasks: Sequence[str], seeds: Sequence[int] = (1, 2, 3)) -> argparse.ArgumentParser:
    """A benchmark's command line: its tasks and its seeds."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=tasks)
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds)
    return parser


def circumstances() -> dict[str, Any]:
    """How a result came about: the command as it was given, the day, the machine."""
    return {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": str(datetime.date.today()),
        "machine": f"{processor()}, {os.cpu_count()} cores, a run on each",
        "torch": torch.__version__,
    }


class Job(NamedTuple):
    """A training: a command that writes its folder, what is there once it is done, and whether it goes on there."""

    folder: Path
    command: list[str]
    result: str = "finished.json"
    goes_on: bool = False


def done(job: Job) -> bool:
    """Whether it has been made to its end, by this command and with these YAML files."""
    return (job.folder / job.result).exists() and recorded(job) == made_by(job)


def has_result(job: Job) -> bool:
    """Whether its folder holds a run by this command that has ended, whatever the YAML files said then."""
    return (job.folder / job.result).exists() and recorded(job).partition("\n")[0] == made_by(job).partition("\n")[0]


def recorded(job: Job) -> str:
    """What made the folder that is there."""
    record = record_of(job)
    return record.read_text(encoding="utf-8") if record.exists() else ""


def record_of(job: Job) -> Path:
    return job.folder.with_suffix(".made_by")


def made_by(job: Job) -> str:
    """The command, and a digest of the YAML files that it reads."""
    files = sorted((ROOT / "config").rglob("*.yaml"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return f"{shlex.join(['python', *job.command[1:]])}\nconfig {digest}\n"  # whatever it is called as


def ours(
    folder: Path,
    task: str,
    seed: int,
    overrides: Sequence[str],
    checkpoint_frequency: int = 0,
    keep_checkpoints: int = 1,
) -> Job:
    """One of our runs; with checkpoints it goes on where it was."""
    run = [f"env={task}", f"seed={seed}", *overrides, *BARE, f"hydra.run.dir={folder}"]
    if checkpoint_frequency:
        run += [f"checkpoint_frequency={checkpoint_frequency}", f"keep_checkpoints={keep_checkpoints}", "resume=auto"]
    return Job(folder, [sys.executable, "train.py", *run], goes_on=checkpoint_frequency > 0)


def finish(jobs: Sequence[Job], after: Callable[[int], object] = lambda index: None) -> None:
    """Runs the jobs that are not done, in order, each alone on a core.

    Args:
        jobs: trainings.
        after: called with the index of each that is done, one at a time.

    Raises:
        RuntimeError: for one that failed; those that had begun are finished first.
    """
    cores: queue.Queue[int] = queue.Queue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)
    failed: list[str] = []
    turn = threading.Lock()

    def one(index: int) -> None:
        job = jobs[index]
        if not failed and not done(job):
            run(job)
        if done(job):
            with turn:
                after(index)

    def run(job: Job) -> None:
        core = cores.get()
        if not job.goes_on or recorded(job) != made_by(job):
            shutil.rmtree(job.folder, ignore_errors=True)
        log = job.folder.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        record_of(job).write_text(made_by(job), encoding="utf-8")
        began_s = time.perf_counter()
        try:
            with log.open("a" if job.goes_on else "w") as file:
                bound = ["taskset", "-c", str(core), *job.command]
                code = subprocess.run(bound, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT).returncode
        finally:
            cores.put(core)
        if code:
            failed.append(str(log))
            if not job.goes_on:
                record_of(job).unlink()
        print(f"{job.folder.name}: exit code {code}, {time.perf_counter() - began_s:.0f} s", flush=True)

    with ThreadPoolExecutor(cores.qsize()) as pool:
        list(pool.map(one, range(len(jobs))))
    if failed:
        raise RuntimeError(f"a training failed; its last words are in {', '.join(failed)}")


class Curve(NamedTuple):
    """A run's evaluations: environment steps, seconds of training until then, mean returns."""

    steps: list[float]
    seconds: list[float]
    returns: list[float]


def curve(folder: Path) -> Curve:
    """Of one of our runs, whose episodes' durations leave evaluations out."""
    training, evaluations = read(folder / "train.csv"), read(folder / "eval.csv")
    episodes = list(zip(*training["duration"], strict=True))
    steps, returns = evaluations["episode_reward"]
    return Curve(steps, [sum(taken for at, taken in episodes if at <= step) for step in steps], returns)


def at(found: Curve, seconds: float) -> float:
    """The return after so many seconds, on the line between two evaluations; 0 at the start."""
    return float(np.interp(seconds, [0.0, *found.seconds], [0.0, *found.returns]))


def mean_and_spread(values: Sequence[float]) -> str:
    """For a table; one value has no spread."""
    return f"{np.mean(values):.0f} ± {stdev(values):.0f}" if len(values) > 1 else f"{values[0]:.0f}"
