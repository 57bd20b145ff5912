"""Compares updates with Stable-Baselines3, SBX and bare matmuls, and times a run and its start: `make bench`.

Each system has its own process and works only in its turn, round after round, so that other load on the machine affects
all alike. A ratio compares the two medians within a round; its median over rounds is reported. Writes
benchmarks/results/speed.json; the last line of output is one JSON object.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from machine import ROOT, circumstances

PEERS = ROOT / ".venv-bench" / "bin" / "python"
Times = dict[str, list[float]]  # system -> median seconds of an update in each round


class Worker:
    """Makes the updates of one system in a process of its own (see benchmarks/update_worker.py)."""

    def __init__(self, system: str, units: int):
        python = str(PEERS) if system in ("sb3", "sbx") else sys.executable
        command = [python, "benchmarks/update_worker.py", system, str(units), str(units)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"a worker ended early: {self._process.args!r}")
        return line

    def median_s(self, num_updates: int) -> float:
        """Returns the median time of an update, without the first fifth, in which caches hold other data."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{num_updates}\n")
        self._process.stdin.flush()
        seconds = json.loads(self._read())
        return median(seconds[len(seconds) // 5 :])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def compare(units: int, rounds: int, updates_per_turn: int) -> Times:
    """Lets the systems take turns, each round starting with the next one."""
    workers = {name: Worker(name, units) for name in ("floor", "ours", "sb3", "sbx")}
    for worker in workers.values():
        worker.median_s(max(2, updates_per_turn // 5))
    names = list(workers)
    times: Times = {name: [] for name in names}
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            times[name].append(workers[name].median_s(updates_per_turn))
    for worker in workers.values():
        worker.close()
    return times


def step_ms(units: int, num_steps: int) -> float:
    """Returns the median milliseconds of a step of training on cheetah_run over the episodes that have updates."""
    sizes = [f"agent.actor.hidden_dim={units}", f"agent.critic.hidden_dim={units}", f"agent.batch_size={units}"]
    run = [f"num_train_steps={num_steps}", "num_seed_steps=1000", "save_video=false", "save_figure=false", "device=cpu"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "train.py", "env=cheetah_run", *run, *sizes, f"hydra.run.dir={folder}/run"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        with Path(folder, "run", "train.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    # The first update, which is traced, is in the second row.
    return 1000 * median(float(row["duration"]) / float(row["episode_length"]) for row in rows[2:])


def start_s() -> float:
    """Returns the seconds from `python train.py preset=cpu` to its first checkpoint, just before the first step."""
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.perf_counter()
        command = [sys.executable, "train.py", "env=cheetah_run", "preset=cpu", f"hydra.run.dir={folder}/run"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not list(Path(folder).glob("run/checkpoints/step_*")):
            if process.poll() is not None:
                sys.exit(f"the run ended early: {command}")
            time.sleep(0.005)
        taken_s = time.perf_counter() - began_s
        process.kill()
        process.wait()
        return taken_s


def compute_ratios(sizes: dict[int, Times]) -> dict[str, float]:
    """Returns the median over rounds of our time divided by another's, for each size."""
    ratios = {}
    for units, times in sizes.items():
        for other in times.keys() - {"ours"}:
            quotients = [a / b for a, b in zip(times["ours"], times[other], strict=True)]
            ratios[f"update_{units}_vs_{other}"] = median(quotients)
    return {name: round(ratios[name], 3) for name in sorted(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--units", type=int, nargs="+", default=[256, 1024], help="also the size of a batch")
    parser.add_argument("--steps", type=int, default=5000, help="of the run")
    args = parser.parse_args()
    sizes = {units: compare(units, args.rounds, max(2, 25_600 // units)) for units in args.units}
    peers = subprocess.run([str(PEERS), "-m", "pip", "freeze"], check=True, stdout=subprocess.PIPE, text=True).stdout
    wanted = ("stable_baselines3==", "sbx-rl==", "jax==", "torch==")
    times_ms = {
        units: {name: round(1000 * median(seconds), 3) for name, seconds in times.items()}
        for units, times in sizes.items()
    }
    record = circumstances() | {
        "peers": [line for line in peers.split() if line.startswith(wanted)],
        "rounds": args.rounds,
        "ratios": compute_ratios(sizes),
        "update_ms": times_ms,
        "step_ms": round(step_ms(args.units[0], args.steps), 3),
        "start_s": round(median(start_s() for _ in range(5)), 2),
    }
    (ROOT / "benchmarks" / "results" / "speed.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name in ("update_ms", "step_ms", "start_s"):
        print(f"{name}: {record[name]}")
    print(json.dumps(record["ratios"]))


if __name__ == "__main__":
    main()
