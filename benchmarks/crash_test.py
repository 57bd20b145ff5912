"""Kills processes at random instants, repeats their commands until they finish, and checks the files they leave.

    python benchmarks/crash_test.py --minutes 1 [--seed 7] [--only pendulum ring]

There are three kinds of scenarios (crash_scenarios.py). Trainings must end with the bytes of an undisturbed run
(crash_training.py), and so must each run of a sweep (crash_sweep.py). Commands that write figures, exports, films or
data sets must leave only whole files under final names (crash_writing.py).

A training gets SIGKILL (one time in five, SIGTERM) and is started again, by the same command, `train.py resume=auto …`,
or by `resume=<folder>`. Most trainings are forked from this process, which has imported everything, so that more kills
fit into a minute; about one in ten is a new interpreter. Half of the kills wait until the training writes a checkpoint.
Prints one line per scenario and writes a summary.
"""

import argparse
import datetime
import json
import os
import platform
import random
import secrets
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", MUJOCO_GL="disabled")  # forking is safe with one thread only
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import matplotlib.pyplot  # noqa: E402, F401
import torch  # noqa: E402
import torch._dynamo  # noqa: E402  takes two seconds, which forked runs then save
from crash_processes import Outcome  # noqa: E402
from crash_scenarios import COMMANDS, SWEEPS, TRAININGS  # noqa: E402
from crash_sweep import Sweep  # noqa: E402
from crash_training import Training  # noqa: E402
from crash_writing import Writing, finish_runs  # noqa: E402
from torch.utils import tensorboard  # noqa: E402, F401  as above

import envs.make  # noqa: E402, F401

RESULT = ROOT / "benchmarks" / "results" / "crash_test.json"
SCENARIOS = [*TRAININGS, *COMMANDS, *SWEEPS]


def prepare(name: str, folder: Path) -> Training | Writing | Sweep:
    """Runs a scenario once, undisturbed, and returns it."""
    if name in COMMANDS:
        return Writing(folder / name, finish_runs(folder / "finished"), COMMANDS[name])
    return Sweep(folder / name, SWEEPS[name]) if name in SWEEPS else Training(folder / name, TRAININGS[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None, help="seed of the instants; random if not given, and printed")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument("--keep", action="store_true", help="keep the folders")
    parser.add_argument("--result", type=Path, default=RESULT, help="file of the summary")
    arguments = parser.parse_args()
    seed = secrets.randbelow(2**31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    until_s = time.perf_counter() + 60 * arguments.minutes
    folder = Path(tempfile.mkdtemp(prefix="crash_test_"))
    outcomes = {name: Outcome() for name in chance.sample(arguments.only, len(arguments.only))}
    prepared: dict[str, Training | Writing | Sweep] = {}
    try:
        while time.perf_counter() < until_s:
            for name, outcome in outcomes.items():
                if time.perf_counter() >= until_s:
                    break
                if name not in prepared:
                    prepared[name] = prepare(name, folder)
                attempted = prepared[name].attempt(chance, outcome, until_s)
                if outcome.faults:
                    print(f"{name}: {outcome.faults[-1]} ({attempted})", flush=True)
                    arguments.keep = True
                else:
                    shutil.rmtree(attempted, ignore_errors=True)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    report(seed, arguments.minutes, outcomes, arguments.result)
    sys.exit(any(outcome.faults for outcome in outcomes.values()))


def report(seed: int, minutes: float, outcomes: dict[str, Outcome], path: Path) -> None:
    for name, outcome in outcomes.items():
        unharmed = "every byte the same" if outcome.runs else "not run, no time left"
        verdict = "DIFFERS: " + "; ".join(outcome.faults) if outcome.faults else unharmed
        print(
            f"{name:17} {outcome.runs:3} runs, {outcome.sigkills:3} SIGKILL ({outcome.during_a_write} during a write), "
            f"{outcome.sigterms:3} SIGTERM, {outcome.fresh_interpreters} in a fresh interpreter: {verdict}"
        )
    kills = sum(outcome.sigkills for outcome in outcomes.values())
    terms = sum(outcome.sigterms for outcome in outcomes.values())
    print(f"{kills} SIGKILL and {terms} SIGTERM with seed {seed}", flush=True)
    summary = {
        "date": datetime.date.today().isoformat(),
        "seed": seed,
        "minutes": minutes,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sigkills": kills,
        "sigterms": terms,
        "scenarios": {name: asdict(outcome) for name, outcome in outcomes.items()},
    }
    path.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
