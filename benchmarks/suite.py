"""Compares runs on SimBa's 28 tasks with published returns: means, intervals and a figure.

    python train.py -m preset=strong "env=$(python benchmarks/suite.py --tasks)" seed=1,2,3 num_eval_episodes=50 \\
        hydra/launcher=this_machine hydra.sweep.dir=exp/suite resume=auto
    python benchmarks/suite.py exp/suite

Without a folder it reads benchmarks/results/suite/returns.csv, which it otherwise writes from the runs. It writes
means.csv and tasks.csv beside it, and docs/img/suite.png.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

import matplotlib
import numpy as np
from machine import ROOT

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from study import runs
from study.statistics import of_scores

RESULTS, FIGURE = ROOT / "benchmarks" / "results" / "suite", ROOT / "docs" / "img" / "suite.png"
REFERENCES = ROOT / "benchmarks" / "references" / "suite_28.csv"
STEPS = 100_000
PLAIN = ("SAC (SimBa repo)", "SAC (SimbaV2 repo)")
OURS = "#d1495b"
SHOWN = {
    "SAC (SimBa repo)": "#8d99ae",
    "XQC": "#2a9d8f",
    "SimbaV2 (2)": "#30638e",
    "BRO (10)": "#edae49",
    "FoG": "#9b5de5",
    "DR.Q": "#606c38",
}

Published = dict[str, dict[str, dict[int, float]]]  # method -> task -> step -> mean return
Returns = dict[str, dict[int, dict[int, float]]]  # task -> seed -> step -> return


def read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def write_csv(name: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with (RESULTS / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def read_published() -> tuple[dict[str, str], Published]:
    """Returns the group of each task (easy or hard), and the published returns."""
    groups: dict[str, str] = {}
    published: Published = {}
    for row in read_csv(REFERENCES):
        groups[row["task"]] = row["group"]
        at_step = published.setdefault(row["method"], {}).setdefault(row["task"], {})
        at_step[int(row["env_step"])] = float(row["mean_return"])
    return groups, published


def record_runs(paths: Sequence[str]) -> None:
    """Writes returns.csv from the finished runs in these folders."""
    finished = sorted((run.task, run.seed, run.returns) for run in runs.find(paths) if run.finished)
    rows = [
        (task, seed, int(step), round(value, 2))
        for task, seed, points in finished
        for step, value in zip(*points, strict=True)
    ]
    write_csv("returns.csv", ["task", "seed", "step", "return"], rows)


def read_returns() -> Returns:
    returns: Returns = {}
    for row in read_csv(RESULTS / "returns.csv"):
        of_seed = returns.setdefault(row["task"], {}).setdefault(int(row["seed"]), {})
        of_seed[int(row["step"])] = float(row["return"])
    return returns


def average_ours(tasks: Sequence[str], returns: Returns) -> list[str]:
    """Returns means after half and all steps, the interval and the interquartile mean of the latter."""
    final = [[seeds[s][STEPS] for s in sorted(seeds)] for seeds in (returns[task] for task in tasks)]
    half = mean(mean(points[STEPS // 2] for points in returns[task].values()) for task in tasks)
    random = np.random.default_rng(0)
    resampled = [np.mean([random.choice(values, len(values)).mean() for values in final]) for _ in range(2000)]
    interval = [f"{bound:.0f}" for bound in np.percentile(resampled, [2.5, 97.5])]
    return [f"{half:.0f}", f"{mean(map(mean, final)):.0f}", *interval, f"{of_scores(final).value[-1]:.0f}"]


def average_published(tasks: Sequence[str], of_task: dict[str, dict[int, float]]) -> list[str]:
    """The same of a method's means over seeds, which have no interval."""
    final = [of_task[task][STEPS] for task in tasks]
    half = np.mean([of_task[task].get(STEPS // 2, np.nan) for task in tasks])
    return [f"{half:.0f}", f"{mean(final):.0f}", "", "", f"{of_scores([[value] for value in final]).value[-1]:.0f}"]


def find_below_plain_sac(returns: Returns, published: Published) -> list[str]:
    """Names the tasks on which the better published SAC leads by more than our standard deviation."""
    below = []
    for task, seeds in sorted(returns.items()):
        final = [points[STEPS] for points in seeds.values()]
        plain = max(published[name][task][STEPS] for name in PLAIN if task in published[name])
        if plain - mean(final) > stdev(final):
            below.append(f"{task} ({mean(final):.0f} ± {stdev(final):.0f}; {plain:.0f})")
    return below


def draw(tasks: Sequence[str], returns: Returns, published: Published) -> None:
    """Draws one panel per task: our seeds, their mean, and published means."""
    figure, axes = plt.subplots(4, 7, figsize=(17, 9), layout="constrained", sharex=True)
    for axis, task in zip(axes.flat, tasks, strict=True):
        for method, color in SHOWN.items():
            points = [(0, 0.0), *sorted((s, r) for s, r in published[method].get(task, {}).items() if s <= STEPS)]
            if len(points) > 1:
                axis.plot(*zip(*points, strict=True), "o--", color=color, linewidth=1.4, markersize=3, label=method)
        curves = [[(0, 0.0), *sorted(points.items())] for points in returns[task].values()]
        for points in curves:
            axis.plot(*zip(*points, strict=True), color=OURS, alpha=0.3, linewidth=1)
        means = np.mean(curves, axis=0)  # (points, 2): step, return
        axis.plot(means[:, 0], means[:, 1], color=OURS, linewidth=2.2, label="ours")
        axis.set_title(task, fontsize=10)
        axis.set_ylim(0, None)
        axis.grid(alpha=0.25)
        axis.set_xticks([0, STEPS // 2, STEPS], ["0", f"{STEPS // 2000}k", f"{STEPS // 1000}k"])
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(FIGURE, dpi=90)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", help="folders of finished runs of all 28 tasks, two seeds or more")
    parser.add_argument("--tasks", action="store_true", help="only print the tasks, for a sweep's env=")
    args = parser.parse_args()
    groups, published = read_published()
    easy, hard = (sorted(task for task, group in groups.items() if group == name) for name in ("easy", "hard"))
    if args.tasks:
        print(",".join([*easy, *hard]))
        return
    if args.runs:
        record_runs(args.runs)
    returns = read_returns()
    common = [task for task in easy if all(STEPS in of.get(task, {}) for of in published.values())]
    rows = []
    for title, tasks in ((f"{len(common)} that all report", common), (f"{len(hard)} hard", hard)):
        rows.append([title, "ours", *average_ours(tasks, returns)])
        for method, of_task in published.items():
            if all(STEPS in of_task.get(task, {}) for task in tasks):
                rows.append([title, method, *average_published(tasks, of_task)])
    names = [f"mean_{STEPS // 2}", f"mean_{STEPS}", "low", "high", "interquartile_mean"]
    write_csv("means.csv", ["tasks", "method", *names], rows)
    by_task = []
    for task in [*easy, *hard]:
        final = [points[STEPS] for points in returns[task].values()]
        others = [published[method].get(task, {}).get(STEPS) for method in SHOWN]
        cells = [len(final), f"{mean(final):.0f}", f"{stdev(final):.0f}"]
        by_task.append([task, *cells, *("" if value is None else f"{value:.0f}" for value in others)])
    write_csv("tasks.csv", ["task", "seeds", "ours", "std", *SHOWN], by_task)
    print(*(", ".join(row) for row in rows), sep="\n")
    print("Below plain SAC:", ", ".join(find_below_plain_sac(returns, published)) or "none")
    draw([*easy, *hard], returns, published)


if __name__ == "__main__":
    main()
