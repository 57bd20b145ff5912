"""Compares the averaged actor of preset=strong with the newest weights of the same runs, after 100 000 steps.

    python studies/averaging.py [--tasks …] [--seeds 1 2 3] [--report]

benchmarks/suite.py makes the runs; those whose folders are not here are left out. Averaging does not change training,
so each run gives a pair: its last evaluation, and the same episodes with its newest weights, a line of
benchmarks/results/averaging.csv. The table has both returns of each task's runs.
"""

import csv
import math
from pathlib import Path
from statistics import mean, stdev

import instruments  # noqa: F401  (finds benchmarks/)
import suite
from keeping import TASKS, newest_return
from training import ROOT, curve, options

TABLE = ROOT / "benchmarks" / "results" / "averaging.csv"
COLUMNS = ("task", "seed", "settings", "newest", "average")

Key = tuple[str, int]  # task, seed


def recorded() -> dict[Key, tuple[float, float]]:
    """Returns the recorded pairs of runs with the preset's present settings."""
    if not TABLE.exists():
        return {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["settings"] == suite.settings()]
    return {(row["task"], int(row["seed"])): (float(row["newest"]), float(row["average"])) for row in rows}


def last_return(folder: Path) -> float:
    """Returns the last return of a finished run as the suite's table has it; nan if there is no such run."""
    return round(curve(folder).returns[-1], 2) if (folder / "finished.json").exists() else math.nan


def add(key: Key, folder: Path, average: float) -> None:
    is_new = not TABLE.exists()
    with TABLE.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(COLUMNS)
        writer.writerow((*key, suite.settings(), round(newest_return(folder, suite.STEPS), 2), average))


def report(pairs: dict[Key, tuple[float, float]]) -> None:
    print("| task | newest weights | their average | seeds |")
    print("| --- | --- | --- | --- |")
    for task in sorted({task for task, _ in pairs}):
        rows = {seed: pair for (name, seed), pair in pairs.items() if name == task}
        newest, average = (", ".join(f"{value:.0f}" for value in values) for values in zip(*rows.values(), strict=True))
        print(f"| {task} | {newest} | {average} | {', '.join(map(str, rows))} |")
    gains = [average - newest for newest, average in pairs.values()]
    if len(gains) > 1:
        error = stdev(gains) / len(gains) ** 0.5
        print(f"mean gain {mean(gains):.1f}, standard error {error:.1f}; {sum(gain > 0 for gain in gains)} of", end=" ")
        print(f"{len(gains)} runs gain")


def main() -> None:
    parser = options(__doc__, TASKS, (1, 2, 3))
    parser.add_argument("--report", action="store_true", help="only print the table")
    args = parser.parse_args()
    pairs = recorded()
    if not args.report:
        for key, run in suite.recorded().items():
            folder, average = suite.job(*key).folder, run.returns[-1]
            if key[0] in args.tasks and key[1] in args.seeds and key not in pairs and last_return(folder) == average:
                add(key, folder, average)
        pairs = recorded()
    report({key: pair for key, pair in pairs.items() if key[0] in args.tasks and key[1] in args.seeds})


if __name__ == "__main__":
    main()
