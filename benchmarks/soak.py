"""Checks that a long run does not grow in memory (once its replay buffer is full) or open files, or lose log rows.

    python benchmarks/soak.py [--steps 100000]

Trains tiny networks on Pendulum-v1 with TensorBoard, checkpoints and evaluations, and watches the process from outside.
Prints a summary and writes it to benchmarks/results/soak.json; the exit code is 1 if anything grew or is missing.
"""

import argparse
import csv
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "soak.json"
EPISODE = 200  # steps of Pendulum-v1
MAY_GROW_BYTES = 4_000_000  # for fragmentation in the allocator


class Sample(NamedTuple):
    """Memory and open files of the process, and the last step in its log, at one moment."""

    step: int
    resident_bytes: int
    open_files: int


def overrides(steps: int, folder: Path) -> list[str]:
    return [
        *(
            "env=Pendulum-v1",
            f"num_train_steps={steps}",
            f"replay_buffer_capacity={steps // 10}",
            "updates_per_step=0.5",
        ),
        *("agent.batch_size=16", "agent.critic.hidden_dim=16", "agent.actor.hidden_dim=16", "num_seed_steps=1000"),
        *("device=cpu", "num_threads=1", "save_video=false", "save_figure=false", "num_eval_episodes=2"),
        *(f"eval_frequency={steps // 20}", f"checkpoint_frequency={steps // 50}", f"log_frequency={steps // 20}"),
        f"hydra.run.dir={folder}",
    ]


def last_step(log: Path) -> int:
    """Returns the step in the last row of a log; 0 if there is none or the row is incomplete."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return int(lines[-1].split(",")[1]) if len(lines) > 1 and lines[-1].count(",") == lines[0].count(",") else 0


def watch(steps: int, folder: Path) -> list[Sample]:
    """Runs the training and samples its process twice a second."""
    command = [sys.executable, "train.py", *overrides(steps, folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    samples = []
    with (folder.with_suffix(".txt")).open("w") as output:
        training = psutil.Popen(command, cwd=ROOT, stdout=output, stderr=output, env=environment)
        while training.poll() is None:
            try:
                usage = training.memory_info().rss, training.num_fds()
            except psutil.Error:
                break
            samples.append(Sample(last_step(folder / "train.csv"), *usage))
            time.sleep(0.5)
        code = training.wait()
    if code:
        raise SystemExit(f"the run ended with {code}: {folder.with_suffix('.txt').read_text(errors='replace')[-500:]}")
    return samples


def faults(steps: int, folder: Path, early: list[Sample], late: list[Sample]) -> list[str]:
    """Returns a line for everything that grew or is missing."""
    lines = []
    grown = max(sample.resident_bytes for sample in late) - max(sample.resident_bytes for sample in early)
    if grown > MAY_GROW_BYTES:
        lines.append(f"{grown:,} bytes more resident at the end")
    if max(sample.open_files for sample in late) > max(sample.open_files for sample in early):
        lines.append("more open files at the end")
    with (folder / "train.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if [int(row["step"]) for row in rows] != list(range(EPISODE, steps + 1, EPISODE)):
        lines.append("rows of train.csv are missing")
    with (folder / "eval.csv").open(newline="", encoding="utf-8") as file:
        evaluated = [int(row["step"]) for row in csv.DictReader(file)]
    if evaluated != list(range(steps // 20, steps + 1, steps // 20)):
        lines.append("rows of eval.csv are missing")
    if len(list((folder / "checkpoints").glob("step_*"))) != 2:
        lines.append("not exactly two checkpoints were kept")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="a multiple of 4000")
    steps = parser.parse_args().steps
    folder = Path(tempfile.mkdtemp(prefix="soak_")) / "run"
    try:
        samples = watch(steps, folder)
        early = [sample for sample in samples if 0.2 * steps <= sample.step < 0.4 * steps]  # the buffer is full at 0.1
        late = [sample for sample in samples if sample.step >= 0.8 * steps]
        problems = faults(steps, folder, early, late)
    finally:
        shutil.rmtree(folder.parent)
    summary = {
        "steps": steps,
        "resident_bytes": {
            name: max(s.resident_bytes for s in part) for name, part in (("early", early), ("late", late))
        },
        "open_files": {name: max(s.open_files for s in part) for name, part in (("early", early), ("late", late))},
        "samples": len(samples),
        "faults": problems,
    }
    print(json.dumps(summary, indent=1))
    RESULT.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
