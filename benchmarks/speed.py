"""Times whole runs, and compares updates with Stable-Baselines3, SBX and bare matmuls: `make bench`.

Each system has its own process and works only in its turn, round after round, so that other load on the machine affects
all alike. A ratio compares the two medians within a round; its median over rounds is reported. Writes
benchmarks/results/speed.json; the last line of output is one JSON object.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from machine import processor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from run.machine import bf16_time_ratio

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / ".venv-bench" / "bin" / "python"
WHOLE = ROOT / "benchmarks" / "whole_training.py"
Times = dict[str, list[float]]  # system -> median seconds of an update in each round


class Worker:
    """A process that prints a line when it is ready, and answers each count on its input with a list of seconds."""

    def __init__(self, command: list[str], folder: Path = ROOT):
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, text=True)
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"a worker ended early: {' '.join(map(str, self._process.args))}")  # type: ignore[arg-type]
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


def updates_of(system: str, units: int, precision: str, checkout: Path = ROOT) -> Worker:
    """Starts the updates of one system at one size, with the code of `checkout`."""
    python = str(PEERS) if system in ("sb3", "sbx") else sys.executable
    worker = str(checkout / "benchmarks" / "update_worker.py")
    return Worker([python, worker, system, str(units), str(units), precision])


def compare(units: int, rounds: int, updates_per_turn: int, with_bf16: bool) -> Times:
    names = ["floor", "ours", "sb3", "sbx", *(["ours bf16"] if with_bf16 else [])]
    workers = {name: updates_of(name.split()[0], units, "bf16" if "bf16" in name else "fp32") for name in names}
    return in_turns(workers, rounds, updates_per_turn)


def in_turns(workers: dict[str, Worker], rounds: int, updates_per_turn: int) -> Times:
    """Lets the workers take turns, each round starting with the next one, and closes them."""
    names = list(workers)
    for worker in workers.values():
        worker.median_s(max(2, updates_per_turn // 5))
    times: Times = {name: [] for name in names}
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            times[name].append(workers[name].median_s(updates_per_turn))
    for worker in workers.values():
        worker.close()
    return times


TO_THE_FIRST_STEP = """
import importlib.util, os, sys, time
import gymnasium as gym
def first(self, *actions):
    print(time.time(), file=sys.stderr)
    os._exit(0)
gym.vector.SyncVectorEnv.step = first

class WhenImported:  # physics.training is not imported earlier than train.py does it
    def find_spec(self, name, path, target=None):
        if name != "physics.training":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            module.TrainingWorlds.step = first
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, WhenImported())
import runpy
runpy.run_path("train.py", run_name="__main__")
"""


def start_s(checkout: Path = ROOT, preset: str = "cpu") -> float:
    """Returns the seconds from `python train.py preset=...` to its first environment step."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", TO_THE_FIRST_STEP, f"preset={preset}", f"hydra.run.dir={folder}/run"]
        began = time.time()
        run = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True)
        return float(run.stderr.split()[-1]) - began


def ratio(times: Times, ours: str, other: str) -> float:
    return round(median(a / b for a, b in zip(times[ours], times[other], strict=True)), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    matmul_ratio = bf16_time_ratio(1024, 1024)  # where bf16 is emulated, an update would take seconds
    with_bf16 = matmul_ratio < 3
    sizes = {256: compare(256, args.rounds, 100, with_bf16), 1024: compare(1024, args.rounds, 10, with_bf16)}
    output = subprocess.run([sys.executable, str(WHOLE)], check=True, stdout=subprocess.PIPE, text=True).stdout
    whole = json.loads(output.splitlines()[-1])
    ratios: dict[str, float] = {
        "update_256_fp32_vs_floor": ratio(sizes[256], "ours", "floor"),
        "update_256_fp32_vs_sb3": ratio(sizes[256], "ours", "sb3"),
        "update_256_fp32_vs_sbx": ratio(sizes[256], "ours", "sbx"),
        "update_1024_fp32_vs_floor": ratio(sizes[1024], "ours", "floor"),
        "update_1024_fp32_vs_sbx": ratio(sizes[1024], "ours", "sbx"),
        "product_1024_bf16_vs_fp32": round(matmul_ratio, 3),
        "train_overhead": whole["train_overhead"],
    }
    if with_bf16:
        ratios["update_256_bf16_vs_fp32"] = ratio(sizes[256], "ours bf16", "ours")
        ratios["update_1024_bf16_vs_fp32"] = ratio(sizes[1024], "ours bf16", "ours")
        ratios["update_1024_bf16_vs_sb3"] = ratio(sizes[1024], "ours bf16", "sb3")
        ratios["update_1024_bf16_vs_sbx"] = ratio(sizes[1024], "ours bf16", "sbx")
    peers = subprocess.run([str(PEERS), "-m", "pip", "freeze"], check=True, stdout=subprocess.PIPE, text=True).stdout
    wanted = ("stable_baselines3==", "sbx-rl==", "jax==", "torch==")
    record: dict[str, Any] = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "versions": {"torch": version("torch"), "peers": [line for line in peers.split() if line.startswith(wanted)]},
        "rounds": args.rounds,
        "ratios": ratios,
        "update_ms": {
            f"{units} units, batch {units}": {
                name: {"median": round(1e3 * median(s), 3), "lowest": round(1e3 * min(s), 3)}
                for name, s in times.items()
            }
            for units, times in sizes.items()
        },
        "whole_training": whole,
        "start_s": round(median(start_s() for _ in range(5)), 2),
    }
    (ROOT / "benchmarks" / "results" / "speed.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for size, systems in record["update_ms"].items():
        print(f"milliseconds of an update, {size} (median over rounds, lowest round):")
        for name, ms in systems.items():
            print(f"  {name:10} {ms['median']:8.2f} {ms['lowest']:8.2f}")
    print("milliseconds of a step of training:", whole["step_ms"])
    print("evaluation and logging, share of a run's time:", whole["share_of_evaluation_and_logging"])
    print("seconds from the command to the first environment step:", record["start_s"])
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
