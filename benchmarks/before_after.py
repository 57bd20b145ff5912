"""How fast the code here is beside that of a commit: an update, the start, and the run that `make train` makes.

    python benchmarks/before_after.py <commit> [--parts update,start,training,run] [--seeds 1 2 3] [--rounds 20]

Both sides have the same interpreter and the same overrides, the commit's in a worktree, and take turns, so that what
else the machine does falls on both alike. `update`: one of SAC with 256 units and batches of 256, fp32, two threads;
with .venv-bench (`make bench` makes it) Stable-Baselines3 and SBX take turns too. `start`: from the command to the
first environment step, and to the answer to a mistyped key. `run`: `preset=fast` on cheetah_run, videos on: wall time,
the training (the episodes' durations, which leave evaluations out, but not what those beside it take from it), and the
final return; a few minutes a side and seed. `training`: a decision of that run with no evaluation beside it, in turns
of 250 of them. Adds its parts to benchmarks/results/before_after.json.
"""

import argparse
import csv
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from machine import processor
from same_bytes import worktree
from speed import PEERS, ROOT, Worker, in_turns, ratio, start_s, updates_of

# A whole training, held in front of an environment step until it is asked for more: the mean seconds of as many.
STEPS_WHEN_ASKED = """
import os, runpy, sys, time
import gymnasium as gym
answers, sys.stdout = sys.stdout, open(os.devnull, "w")  # what a run says is not asked for
step, asked, left, began = gym.vector.SyncVectorEnv.step, 1, 3000, 0.0
def held(self, actions):
    global asked, left, began
    if left == 0:
        print([(time.perf_counter() - began) / asked], file=answers, flush=True)
        left = asked = int(sys.stdin.readline())
        began = time.perf_counter()
    left -= 1
    return step(self, actions)
gym.vector.SyncVectorEnv.step = held
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
    asked: dict[str, Callable[[Path], float]] = {
        "first_step_s": lambda checkout: start_s(checkout, "fast"),
        "answer_s": answer_s,
    }
    found = {}
    for name, seconds in asked.items():
        of_side: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(7):
            for side, checkout in sides.items():
                of_side[side].append(seconds(checkout))
        found[name] = {side: round(median(values), 2) for side, values in of_side.items()}
    return found


def answer_s(checkout: Path) -> float:
    """Seconds to the line that says what is wrong with a key."""
    began = time.perf_counter()
    command = [sys.executable, "train.py", "preset=fast", "agent.actor_lrr=1"]
    code = subprocess.run(command, cwd=checkout, capture_output=True).returncode
    assert code == 2, code
    return time.perf_counter() - began


def run(sides: Sides, args: argparse.Namespace) -> dict[str, Any]:
    of_side: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for seed in args.seeds:
        for side in sorted(sides, reverse=seed % 2 == 0):
            of_side[side].append(one_run(sides[side], seed))
            print(f"seed {seed}, {side}: {of_side[side][-1]}", file=sys.stderr, flush=True)
    pairs = list(zip(of_side["before"], of_side["after"], strict=True))
    ratios = {key: round(median(b[key] / a[key] for a, b in pairs), 3) for key in ("wall_s", "training_s")}
    return {"seeds": args.seeds, "ratios": ratios} | of_side


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
    return Worker([sys.executable, "-c", STEPS_WHEN_ASKED, "preset=fast", *never, *rest], checkout)


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
        parser.error(f"--parts: no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    with (
        tempfile.TemporaryDirectory(prefix="before_after_") as folder,
        worktree(args.commit, Path(folder) / "commit") as there,
    ):
        measured = {name: PARTS[name]({"before": there, "after": ROOT}, args) for name in args.parts}
    record = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    record |= {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "commit": args.commit,
        **measured,
    }
    RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
