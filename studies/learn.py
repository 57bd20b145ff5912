"""Trains one configuration with several seeds and records the evaluations.

    python studies/learn.py cartpole_swingup --seeds 1 2 3 -- preset=cpu env=cartpole_swingup

Writes benchmarks/results/learn/<name>.json (machine, command, every evaluation) and a figure beside it, and prints a
table row. --keep reuses finished runs in exp/learn/<name>.
"""

import argparse
import concurrent.futures
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import instruments
import matplotlib
from machine import circumstances

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = instruments.ROOT


def train(folder: Path, overrides: list[str], seed: int, threads: int | None) -> float:
    """Runs train.py in an empty folder and returns the wall time in seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "train.py", *overrides, f"seed={seed}", f"hydra.run.dir={folder.relative_to(ROOT)}"]
    if threads:
        command.append(f"num_threads={threads}")
    started_s = time.perf_counter()
    with (folder / "stdout.txt").open("w") as log:
        subprocess.run(command, cwd=ROOT, check=True, stdout=log, stderr=subprocess.STDOUT)
    wall_s = time.perf_counter() - started_s
    (folder / "wall_s.txt").write_text(f"{wall_s:.1f}\n", encoding="utf-8")
    return wall_s


def evaluations(folder: Path) -> list[dict[str, float]]:
    with (folder / "eval.csv").open(newline="", encoding="utf-8") as file:
        names = ("step", "episode_reward", "episode_reward_min", "episode_reward_max")
        return [{name: float(row[name]) for name in names} for row in csv.DictReader(file)]


def draw(path: Path, title: str, curves: dict[int, list[dict[str, float]]]) -> None:
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for color, (seed, curve) in zip(plt.get_cmap("tab10").colors, curves.items(), strict=False):  # type: ignore[attr-defined]
        steps = [point["step"] for point in curve]
        low, high = ([point[f"episode_reward_{end}"] for point in curve] for end in ("min", "max"))
        axes.fill_between(steps, low, high, color=color, alpha=0.12, linewidth=0)
        axes.plot(steps, [point["episode_reward"] for point in curve], color=color, label=f"seed {seed}")
    axes.set(title=title, xlabel="environment steps", ylabel="return: mean, and min to max of the episodes")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, each with its share of the cores")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("overrides", nargs="*", metavar="-- overrides")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:end])
    args.overrides = sys.argv[end + 1 :]
    folders = {seed: ROOT / "exp" / "learn" / args.name / f"s{seed}" for seed in args.seeds}
    threads = None if args.jobs == 1 else max(1, (os.cpu_count() or 1) // args.jobs)

    def wall_time(seed: int) -> float:
        record_of_time = folders[seed] / "wall_s.txt"
        return (
            float(record_of_time.read_text(encoding="utf-8"))
            if args.keep and record_of_time.exists()
            else train(folders[seed], args.overrides, seed, threads)
        )

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        wall_s = dict(zip(args.seeds, pool.map(wall_time, args.seeds), strict=True))
    curves = {seed: evaluations(folder) for seed, folder in folders.items()}
    final = [curve[-1]["episode_reward"] for curve in curves.values()]
    spread = statistics.stdev(final) if len(final) > 1 else 0.0
    minutes = statistics.mean(wall_s.values()) / 60
    results = ROOT / "benchmarks" / "results" / "learn"
    results.mkdir(parents=True, exist_ok=True)
    record = {
        **circumstances(),
        "command": f"python train.py {' '.join(args.overrides)}",
        "runs_at_a_time": args.jobs,
        "final_mean": round(statistics.mean(final), 2),
        "final_std": round(spread, 2),
        "minutes": round(minutes, 2),
        "wall_s": wall_s,
        "curves": curves,
    }
    (results / f"{args.name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    draw(results / f"{args.name}.png", record["command"], curves)
    scores = ", ".join(f"{score:.0f}" for score in final)
    print(f"| `{record['command']}` | {scores} | {record['final_mean']:.0f} ± {spread:.0f} | {minutes:.1f} |")


if __name__ == "__main__":
    main()
