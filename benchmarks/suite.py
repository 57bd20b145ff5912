"""Trains SimBa's 28 tasks for 100 000 environment steps with three seeds, and compares published methods.

    python benchmarks/suite.py [--tasks …] [--seeds 1 2 3] [--report]

Each core trains one run at a time. An interrupted study continues where it stopped, even within a run. A finished run
is four lines of benchmarks/results/suite/returns.csv (evaluations of fifty episodes, seconds of training) and is not
repeated unless the preset has changed. The policy of each task's median seed (or of the
nearest one whose run is on this machine) is saved in policies/. --report trains
nothing and only makes means.csv, tasks.csv and docs/img/suite.png. The tables also have the results of the preset
before its actor was averaged (evaluations of ten episodes).
"""

import csv
import itertools
import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import mean, median_low

import matplotlib
import numpy as np
import trained_policies
import yaml
from machine import circumstances
from records import Records, digest
from training import ROOT, Curve, Job, curve, finish, mean_and_spread, options, ours

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from study.statistics import of_scores

FOLDER, RESULTS = ROOT / "exp" / "benchmarks" / "suite", ROOT / "benchmarks" / "results" / "suite"
RETURNS = Records(RESULTS / "returns.csv", ("task", "seed", "settings"))
FIGURE = ROOT / "docs" / "img" / "suite.png"
REFERENCES = ROOT / "benchmarks" / "references" / "suite_28.csv"
PRESET, STEPS, EPISODES = "strong", 100_000, 50
BEFORE = "00de66c4"  # digest of the preset's settings before its actor was averaged
SMALL = ("agent.critic.hidden_dim=256", "agent.actor.hidden_dim=256", "agent.batch_size=256")
ARITHMETIC: dict[str, tuple[str, ...]] = {
    "ours": (f"preset={PRESET}",),
    "SAC, 256 units": ("agent=sac", *SMALL),
    "SimBa": ("agent=simba",),
    "XQC": ("agent=xqc",),
}
PLAIN = ("SAC (SimBa repo)", "SAC (SimbaV2 repo)")
SHOWN = {
    "SAC (SimBa repo)": "#8d99ae",
    "XQC": "#2a9d8f",
    "SimbaV2 (2)": "#30638e",
    "BRO (10)": "#edae49",
    "FoG": "#9b5de5",
    "DR.Q": "#606c38",
}
OURS = "#d1495b"

Published = dict[str, dict[str, dict[int, float]]]  # method -> task -> step -> mean return
Returns = dict[str, dict[int, dict[int, float]]]  # task -> seed -> step -> return


def published() -> tuple[dict[str, str], Published]:
    """Returns the group of each task (easy or hard), and the published returns."""
    groups: dict[str, str] = {}
    published_returns: Published = {}
    with REFERENCES.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            groups[row["task"]] = row["group"]
            at_step = published_returns.setdefault(row["method"], {}).setdefault(row["task"], {})
            at_step[int(row["env_step"])] = float(row["mean_return"])
    return groups, published_returns


@cache
def settings() -> str:
    """Returns a digest of the preset's settings."""
    return digest(yaml.safe_load((ROOT / "config" / "preset" / f"{PRESET}.yaml").read_text(encoding="utf-8")))


def recorded(made_with: str = "") -> dict[tuple[str, int], Curve]:
    """Returns the runs made with these settings (a digest; by default the preset's present one), by task and seed."""
    wanted = made_with or settings()
    return {(task, int(seed)): run for (task, seed, digest_), run in RETURNS.read().items() if digest_ == wanted}


def job(task: str, seed: int) -> Job:
    lengths = (f"num_train_steps={STEPS}", f"eval_frequency={STEPS // 4}", f"num_eval_episodes={EPISODES}")
    return ours(FOLDER / f"{task}_s{seed}", task, seed, (f"preset={PRESET}", *lengths), checkpoint_frequency=20_000)


def last_return(folder: Path) -> float:
    """Returns the last return of a finished run, rounded as in the table; nan if there is no such run."""
    return round(curve(folder).returns[-1], 2) if (folder / "finished.json").exists() else math.nan


def keep_median(task: str) -> None:
    """Saves in policies/ the policy of the task's median seed so far, or of the nearest seed whose run is here."""
    final = {seed: points[STEPS] for seed, points in of_tasks(recorded())[task].items()}
    middle = median_low(final.values())
    for seed in sorted(final, key=lambda seed: abs(final[seed] - middle)):
        folder = job(task, seed).folder
        if last_return(folder) == final[seed]:  # otherwise it was made on another machine, or before the preset changed
            trained_policies.keep(task, folder)
            return


def of_tasks(runs: dict[tuple[str, int], Curve]) -> Returns:
    returns: Returns = {}
    for (task, seed), run in runs.items():
        returns.setdefault(task, {})[seed] = dict(zip(map(int, run.steps), run.returns, strict=True))
    return returns


def interquartile_mean(values: Sequence[float]) -> float:
    return float(of_scores([[value] for value in values]).value[-1])


def best_of_run(points: dict[int, float]) -> float:
    return max(points.values())


def our_means(name: str, tasks: Sequence[str], returns: Returns) -> list[str]:
    """Returns our row: means after half and all steps, with interval and interquartile mean, and of best returns."""
    final = [[seeds[s][STEPS] for s in sorted(seeds)] for seeds in (returns[task] for task in tasks)]
    half = mean(mean(points[STEPS // 2] for points in returns[task].values()) for task in tasks)
    best = mean(mean(map(best_of_run, returns[task].values())) for task in tasks)
    random = np.random.default_rng(0)
    resampled = [np.mean([random.choice(values, len(values)).mean() for values in final]) for _ in range(2000)]
    interval = ["", ""]
    if all(len(values) > 1 for values in final):  # one seed has no interval
        interval = [f"{bound:.0f}" for bound in np.percentile(resampled, [2.5, 97.5])]
    middle = of_scores(final).value[-1]
    return [name, f"{half:.0f}", f"{mean(map(mean, final)):.0f}", *interval, f"{middle:.0f}", f"{best:.0f}"]


def means(title: str, tasks: Sequence[str], of_ours: dict[str, Returns], others: Published) -> list[list[str]]:
    """Returns rows of means, intervals and interquartile means over tasks, ours and published.

    Args:
        of_ours: our returns by the row's name. Results that lack a task get no row.
    """
    rows: list[list[str]] = []
    for name, returns in of_ours.items():
        if all(task in returns for task in tasks):
            rows.append([title, *our_means(name, tasks, returns)])
    for method, of_task in others.items():
        if all(STEPS in of_task.get(task, {}) for task in tasks):
            final_means = [of_task[task][STEPS] for task in tasks]
            half = float(np.mean([of_task[task].get(STEPS // 2, np.nan) for task in tasks]))
            middle = interquartile_mean(final_means)
            rows.append([title, method, f"{half:.0f}", f"{mean(final_means):.0f}", "", "", f"{middle:.0f}", ""])
    return rows


def our_cells(seeds: dict[int, dict[int, float]]) -> list[str]:
    """Returns the number of seeds, the mean and standard deviation of their last returns, and their mean best."""
    final = [points[STEPS] for points in seeds.values()]
    if not final:
        return ["0", "", "", ""]
    spread = f"{np.std(final, ddof=1):.0f}" if len(final) > 1 else ""
    return [str(len(final)), f"{mean(final):.0f}", spread, f"{mean(map(best_of_run, seeds.values())):.0f}"]


def by_task(tasks: Sequence[str], ours_: Returns, before: Returns, others: Published) -> list[list[str]]:
    """Returns a row per task: our returns, those before the actor was averaged, and the published means."""
    rows: list[list[str]] = []
    for task in tasks:
        published_finals = [others[method].get(task, {}).get(STEPS) for method in SHOWN]
        cells = [*our_cells(ours_.get(task, {})), *our_cells(before.get(task, {}))[1:]]
        rows.append([task, *cells, *("" if v is None else f"{v:.0f}" for v in published_finals)])
    return rows


def write(name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Writes a CSV file beside the returns."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def below_plain_sac(ours_: Returns, others: Published) -> str:
    """Names the tasks on which the better published SAC leads by more than our standard deviation."""
    behind: dict[str, float] = {}
    for task, seeds in ours_.items():
        final = [points[STEPS] for points in seeds.values()]
        plain = max(others[name][task][STEPS] for name in PLAIN if task in others[name])
        if plain - mean(final) > np.std(final, ddof=len(final) > 1):
            behind[f"{task} ({mean_and_spread(final)}; {plain:.0f})"] = plain - mean(final)
    return "Below plain SAC: " + (", ".join(sorted(behind, key=behind.__getitem__, reverse=True)) or "none")


def arithmetic() -> str:
    """Returns a line with the GFLOP per environment step of the preset and of the other methods' sizes."""
    from arithmetic import gflop

    from settings import compose

    run = compose.plain(compose.compose_config("train", list(ARITHMETIC["ours"])))
    shares = {"ours": run["updates_per_step"] / run["action_repeat"]}  # others: two updates in two steps
    costs = {name: gflop(overrides) * shares.get(name, 1.0) for name, overrides in ARITHMETIC.items()}
    return "GFLOP of an environment step: " + ", ".join(f"{name} {value:.2f}" for name, value in costs.items())


def draw(tasks: Sequence[str], ours_: Returns, others: Published) -> None:
    """Draws one panel per task: our seeds, their mean, and published means."""
    figure, axes = plt.subplots(4, 7, figsize=(17, 9), layout="constrained", sharex=True)
    for axis, task in zip(axes.flat, tasks, strict=False):
        for method, color in SHOWN.items():
            points = [(0, 0.0), *sorted((s, r) for s, r in others[method].get(task, {}).items() if s <= STEPS)]
            if len(points) > 1:
                axis.plot(*zip(*points, strict=True), "o--", color=color, linewidth=1.4, markersize=3, label=method)
        curves = [[(0, 0.0), *sorted(points.items())] for points in ours_.get(task, {}).values()]
        for points in curves:
            axis.plot(*zip(*points, strict=True), color=OURS, alpha=0.3, linewidth=1)
        if curves:
            steps = [step for step, _ in curves[0]]
            axis.plot(
                steps,
                np.mean([[r for _, r in points] for points in curves], axis=0),
                color=OURS,
                linewidth=2.2,
                label="ours",
            )
        axis.set_title(task, fontsize=10)
        axis.set_ylim(0, None)
        axis.grid(alpha=0.25)
        axis.set_xticks([0, STEPS // 2, STEPS], ["0", f"{STEPS // 2000}k", f"{STEPS // 1000}k"])
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(FIGURE, dpi=90)
    plt.close(figure)


def report() -> None:
    groups, others = published()
    runs = recorded()
    returns = of_tasks(runs)
    easy = sorted(task for task, group in groups.items() if group == "easy")
    hard = sorted(task for task, group in groups.items() if group == "hard")
    common = [task for task in easy if all(STEPS in of.get(task, {}) for of in others.values())]
    sparse = [task for task in easy if task.startswith("cartpole") and task.endswith("sparse")]
    parts = {
        f"{len(common)} that all report": common,
        f"{len(common) + len(sparse)}, with {' and '.join(sparse)}": [*common, *sparse],
    }
    parts |= {f"{len(hard)} hard": hard}
    before = of_tasks(recorded(BEFORE))
    of_ours = {"ours": returns, "ours, before": before}
    rows = [row for title, tasks in parts.items() for row in means(title, tasks, of_ours, others)]
    names = [f"mean_{STEPS // 2}", f"mean_{STEPS}", "low", "high", "interquartile_mean", "best_of_four"]
    write("means.csv", ["tasks", "method", *names], rows)
    columns = [f"{column}{part}" for part in ("", "_before") for column in ("ours", "std", "best")]
    write("tasks.csv", ["task", "seeds", *columns, *SHOWN], by_task([*easy, *hard], returns, before, others))
    print(*(", ".join(row) for row in rows), below_plain_sac(returns, others), arithmetic(), sep="\n")
    seconds = [run.seconds[-1] for run in runs.values()]
    if seconds:
        print(f"{len(seconds)} runs, {np.median(seconds) / 60:.1f} minutes of training each (median) on one core")
    draw([*easy, *hard], returns if set(returns) == set(groups) else before, others)  # until all tasks have new ones


def main() -> None:
    groups, _ = published()
    parser = options(__doc__, sorted(groups))
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    if not args.report:
        done = recorded()
        missing = [key for key in itertools.product(args.tasks, args.seeds) if key not in done]
        missing.sort(key=lambda key: key[1])  # the first seed of every task comes first

        def keep(index: int) -> None:
            task, seed = missing[index]
            RETURNS.add((task, seed, settings()), curve(job(task, seed).folder))
            keep_median(task)

        finish([job(*key) for key in missing], after=keep)
        (RESULTS / "made.json").write_text(
            json.dumps(circumstances() | {"preset": PRESET}, indent=1) + "\n", encoding="utf-8"
        )
    report()


if __name__ == "__main__":
    main()
