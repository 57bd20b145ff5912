"""Measures trainings in 1024 worlds of mujoco-warp on a GPU: steps per second, and returns over time.

    python benchmarks/gpu_worlds.py [--seconds 75] [TASK ...]

Runs `train.py preset=many_worlds physics=warp` for each task (by default cheetah_run and humanoid_run) and interrupts
it --seconds after the first row of train.csv, when mujoco-warp has compiled its kernels. Words with `=` go to train.py.
Writes benchmarks/results/gpu_worlds.json after each task.
"""

import argparse
import csv
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from machine import ROOT, circumstances

RESULTS = ROOT / "benchmarks" / "results" / "gpu_worlds.json"
TASKS = ["cheetah_run", "humanoid_run"]
POLL_S = 0.5
LEARNING = 200_000  # steps; the preset acts at random for 100 000


def train(folder: Path, task: str, seconds: float, overrides: list[str]) -> dict[str, Any]:
    """Trains for `seconds`, then interrupts; returns the speed once updates have begun, and every evaluation."""
    command = [sys.executable, "train.py", "preset=many_worlds", f"env={task}", "physics=warp", "save_figure=false"]
    command += ["log_frequency=1_024_000", "eval_frequency=1_024_000", "checkpoint_frequency=1_000_000_000", *overrides]
    started_s = time.perf_counter()
    process = subprocess.Popen([*command, f"hydra.run.dir={folder}"], cwd=ROOT)
    reached: list[tuple[float, int]] = []  # seconds since the start, step at the last end of an episode
    while process.poll() is None and (not reached or reached[-1][0] - reached[0][0] < seconds):
        time.sleep(POLL_S)
        if rows := rows_of(folder / "train.csv"):
            reached.append((time.perf_counter() - started_s, int(rows[-1]["step"])))
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    process.wait()
    learning = [(at_s, step) for at_s, step in reached if step > LEARNING]
    return {
        "task": task,
        "overrides": overrides,
        "seconds_to_the_first_episode": round(reached[0][0], 1),
        "steps_per_second": round(speed(learning)) if len(learning) > 1 else None,
        "reached": [[round(at_s, 1), step] for at_s, step in reached[:: round(5 / POLL_S)]],
        "evaluations": [
            {
                "step": int(row["step"]),
                "seconds": next((round(at_s, 1) for at_s, step in reached if step >= int(row["step"])), None),
                "return": round(float(row["episode_reward"]), 1),
                "std": round(float(row["episode_reward_std"]), 1),
            }
            for row in rows_of(folder / "eval.csv")
        ],
    }


def speed(reached: list[tuple[float, int]]) -> float:
    (first_s, first_step), (last_s, last_step) = reached[0], reached[-1]
    return (last_step - first_step) / (last_s - first_s)


def rows_of(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=75)
    parser.add_argument("tasks", nargs="*", default=TASKS, metavar="TASK_OR_OVERRIDE")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks/gpu_worlds.py: needs an NVIDIA GPU, and torch finds none", file=sys.stderr)
        return 2
    runs = []
    overrides = [word for word in args.tasks if "=" in word]
    for task in [word for word in args.tasks if "=" not in word] or TASKS:
        with tempfile.TemporaryDirectory() as folder:
            runs.append(train(Path(folder) / "run", task, args.seconds, overrides))
        print(json.dumps(runs[-1]))
        result = circumstances() | {"gpu": torch.cuda.get_device_name(), "runs": runs}
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
