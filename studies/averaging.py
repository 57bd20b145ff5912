"""Compares the averaged actor with the newest weights of the same runs.

    python studies/averaging.py [--presets strong fast] [--tasks …] [--seeds 1 2 3] [--report]

Averaging does not change training, so each run gives a pair: its last evaluation, and the same 50 episodes with its
newest weights. Runs of preset=strong are those of benchmarks/suite.py whose folders are here, after 100 000 steps; runs
of preset=fast are made here, 80 000 steps on cheetah_run, walker_run, quadruped_walk and reacher_hard, on which it was
tuned. A pair is a line of benchmarks/results/averaging.csv; the table has both returns of each task's runs.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

import instruments  # noqa: F401  (finds benchmarks/)
import keeping
import suite
import yaml
from records import digest
from training import ROOT, Job, curve, finish, options, ours

TABLE = ROOT / "benchmarks" / "results" / "averaging.csv"
FOLDER = ROOT / "exp" / "benchmarks" / "averaging"
COLUMNS = ("preset", "task", "seed", "settings", "newest", "average")
FAST, FAST_STEPS = ("preset=fast", "agent.actor_average_share=0.0005"), 80_000
TASKS = {"strong": keeping.TASKS, "fast": ("cheetah_run", "walker_run", "quadruped_walk", "reacher_hard")}

Key = tuple[str, str, int]  # preset, task, seed
Pair = tuple[float, float]  # returns of the newest weights and of the average


def settings(preset: str) -> str:
    """Returns a digest of a preset's settings."""
    if preset == "strong":
        return suite.settings()
    path = ROOT / "config" / "preset" / "fast.yaml"
    return digest([FAST, yaml.safe_load(path.read_text(encoding="utf-8"))])


def recorded() -> dict[Key, Pair]:
    """Returns the recorded pairs of runs with the present settings."""
    if not TABLE.exists():
        return {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["settings"] == settings(row["preset"])]
    return {
        (row["preset"], row["task"], int(row["seed"])): (float(row["newest"]), float(row["average"])) for row in rows
    }


def add(key: Key, folder: Path) -> None:
    """Evaluates the newest weights of a finished run and writes its pair."""
    steps, _, returns = curve(folder)
    is_new = not TABLE.exists()
    newest = keeping.newest_return(folder, int(steps[-1]))
    with TABLE.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(COLUMNS)
        writer.writerow((*key, settings(key[0]), round(newest, 2), round(returns[-1], 2)))


def fast_job(task: str, seed: int) -> Job:
    lengths = (f"num_train_steps={FAST_STEPS}", f"eval_frequency={FAST_STEPS // 4}", "num_eval_episodes=50")
    return ours(FOLDER / f"fast_{task}_s{seed}", task, seed, (*FAST, *lengths), checkpoint_frequency=FAST_STEPS // 4)


def measure(missing: Sequence[Key]) -> None:
    returns = {key: run.returns[-1] for key, run in suite.recorded().items()}
    for key in missing:
        folder = suite.job(*key[1:]).folder
        if key[0] == "strong" and suite.last_return(folder) == returns.get(key[1:]):
            add(key, folder)
    fast = [key for key in missing if key[0] == "fast"]
    jobs = [fast_job(*key[1:]) for key in fast]
    finish(jobs, after=lambda index: add(fast[index], jobs[index].folder))


def report(preset: str, pairs: dict[Key, Pair]) -> None:
    print(f"| preset={preset} | newest weights | their average | seeds |")
    print("| --- | --- | --- | --- |")
    for task in sorted({task for _, task, _ in pairs}):
        rows = {seed: pair for (_, name, seed), pair in pairs.items() if name == task}
        newest, average = (", ".join(f"{value:.0f}" for value in values) for values in zip(*rows.values(), strict=True))
        print(f"| {task} | {newest} | {average} | {', '.join(map(str, rows))} |")
    gains = [average - newest for newest, average in pairs.values()]
    if len(gains) > 1:
        error = stdev(gains) / len(gains) ** 0.5
        print(f"mean gain {mean(gains):.1f}, standard error {error:.1f}; {sum(gain > 0 for gain in gains)} of", end=" ")
        print(f"{len(gains)} runs gain")


def main() -> None:
    parser = options(__doc__, ())
    parser.add_argument("--presets", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--report", action="store_true", help="only print the table")
    args = parser.parse_args()
    keys = [
        (preset, task, seed) for seed in args.seeds for preset in args.presets for task in args.tasks or TASKS[preset]
    ]
    if not args.report:
        known = recorded()
        measure([key for key in keys if key not in known])
    pairs = recorded()
    for preset in args.presets:
        report(preset, {key: pairs[key] for key in keys if key[0] == preset and key in pairs})


if __name__ == "__main__":
    main()
