"""Compares the speed of this checkout with that of a commit: an update, the start, and the run of `make train`.

    python benchmarks/before_after.py <commit> [--parts update,start,training,run] [--seeds 1 2 3] [--rounds 20]

Both sides have the same interpreter and the same overrides (the commit is checked out in a worktree) and take turns, so
that other load on the machine affects both alike.

    update     one update of SAC: 256 units, batches of 256, fp32, torch's own number of threads; Stable-Baselines3 and
               SBX take turns too if there is a .venv-bench (`make bench` builds it)
    start      time from the command to the first environment step, and to the message about a mistyped key
    training   a decision of `preset=fast` on cheetah_run without evaluations, in turns of 250 decisions
    run        that run in full, with videos, a few minutes per side and seed: wall time, training time (the sum of the
               episodes' durations, slowed by evaluations in the background), evaluation time and the final return

Updates the measured parts of benchmarks/results/before_after.json.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from machine import circumstances
from same_bytes import worktree
from speed import PEERS, ROOT, Worker, in_turns, ratio, start_s, updates_of

# Runs train.py. After 3000 environment steps it prints a line and waits for a number of steps on standard input. After
# that many steps it prints their mean seconds and waits again.
STEPS_ON_REQUEST = """
import os, runpy, sys, time
import gymnasium as gym
answers, sys.stdout = sys.stdout, open(os.devnull, "w")  # without the output of the run
step, count, left, began = gym.vector.SyncVectorEnv.step, 1, 3000, 0.0
def paced(self, actions):
    global count, left, began
    if left == 0:
        print([(time.perf_counter() - began) / count], file=answers, flush=True)
        left = count = int(sys.stdin.readline())
        began = time.perf_counter()
    left -= 1
    return step(self, actions)
gym.vector.SyncVectorEnv.step = paced
runpy.run_path("train.py", run_name="__main__")
"""
RESULT = ROOT / "benchmarks" / "results" / "before_after.json"
Sides = dict[str, Path]


def update(sides: Sides, args: argparse.Namespace) -> dict[str, Any]:
    workers = {side: updates_of("ours", 256, "fp32", checkout) for side, checkout in sides.items()}
    peers = [peer for peer in ("sb3", "sbx") if PEERS.exists()]
    times = in_turns(workers | {peer: updates_of(peer, 256, "fp32") for peer in peers}, args.rounds, 100)
    return {
        "update_ms": {name: round(1e3 * median(seconds), 3) for name, seconds in times.items()},
        "lowest_ms": {name: round(1e3 * min(seconds), 3) for name, seconds in times.items()},
        "ratios": {"after_vs_before": ratio(times, "after", "before")}
        | {f"{side}_vs_{peer}": ratio(times, side, peer) for peer in peers for side in sides},
    }


def start(sides: Sides, args: argparse.Namespace) -> dict[str, Any]:
    timers: dict[str, Callable[[Path], float]] = {
        "first_step_s": lambda checkout: start_s(checkout, "fast"),
        "answer_s": answer_s,
    }
    medians = {}
    for name, timer in timers.items():
        times: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(7):
            for side, checkout in sides.items():
                times[side].append(timer(checkout))
        medians[name] = {side: round(median(seconds), 2) for side, seconds in times.items()}
    return medians


def answer_s(checkout: Path) -> float:
    """Returns the seconds from the command to the message about a mistyped key."""
    began = time.perf_counter()
    command = [sys.executable, "train.py", "preset=fast", "agent.actor_lrr=1"]
    code = subprocess.run(command, cwd=checkout, capture_output=True).returncode
    assert code == 2, code
    return time.perf_counter() - began


def run(sides: Sides, args: argparse.Namespace) -> dict[str, Any]:
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for seed in args.seeds:
        for side in sorted(sides, reverse=seed % 2 == 0):
            runs[side].append(one_run(sides[side], seed))
            print(f"seed {seed}, {side}: {runs[side][-1]}", file=sys.stderr, flush=True)
    pairs = list(zip(runs["before"], runs["after"], strict=True))
    ratios = {key: round(median(b[key] / a[key] for a, b in pairs), 3) for key in ("wall_s", "training_s")}
    return {"seeds": args.seeds, "ratios": ratios} | runs


def one_run(checkout: Path, seed: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "train.py", "preset=fast", f"seed={seed}", f"hydra.run.dir={folder}/run"]
        began = time.perf_counter()
        subprocess.run(command, cwd=checkout, check=True, capture_output=True)
        wall_s = time.perf_counter() - began
        training, evaluations = (table(Path(folder) / "run" / name) for name in ("train.csv", "eval.csv"))
    return {
        "wall_s": round(wall_s, 1),
        "training_s": round(sum(float(row["duration"]) for row in training), 1),
        "evaluations_s": round(sum(float(row["duration"]) for row in evaluations), 1),
        "return": round(float(evaluations[-1]["episode_reward"]), 1),
    }


def training(sides: Sides, args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        workers = {side: trainer(checkout, Path(folder) / side) for side, checkout in sides.items()}
        times = in_turns(workers, args.rounds, 250)
    return {
        "decision_ms": {side: round(1e3 * median(seconds), 3) for side, seconds in times.items()},
        "lowest_ms": {side: round(1e3 * min(seconds), 3) for side, seconds in times.items()},
        "after_vs_before": ratio(times, "after", "before"),
    }


def trainer(checkout: Path, folder: Path) -> Worker:
    never = [f"{key}=1_000_000" for key in ("num_train_steps", "eval_frequency")]
    rest = ["replay_buffer_capacity=80_000", "num_eval_episodes=1", "save_video=false", f"hydra.run.dir={folder}"]
    return Worker([sys.executable, "-c", STEPS_ON_REQUEST, "preset=fast", *never, *rest], checkout)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


PARTS = {"update": update, "start": start, "training": training, "run": run}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"--parts: no {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    with (
        tempfile.TemporaryDirectory(prefix="before_after_") as folder,
        worktree(args.commit, Path(folder) / "commit") as commit,
    ):
        measured = {name: PARTS[name]({"before": commit, "after": ROOT}, args) for name in args.parts}
    record = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    record |= circumstances() | {"commit": args.commit} | measured
    RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
