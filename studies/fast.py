"""Compares what preset=fast and preset=cpu learn in the same few minutes.

    python studies/fast.py [--tasks …] [--seeds 1 2 3] [--against three]

Trains on six tasks with three seeds, about two minutes per run, one run per core. The presets take turns, so that other
load on the machine affects both alike. The two runs of a pair are compared after the training time (without
evaluations) of the shorter one; returns are interpolated between evaluations. preset=fast was tuned on four of the
tasks (studies/search.py), not on hopper_stand and finger_turn_hard. Writes benchmarks/results/fast.json and fast.png
and prints the table. `--against three` compares with rows of three steps instead of preset=cpu, and writes
fast_against_three.json. Reuses finished runs in exp/benchmarks/fast.
"""

import json
from statistics import mean

import instruments  # noqa: F401  (finds benchmarks/)
import matplotlib
import numpy as np
from machine import circumstances
from scipy.stats import trim_mean
from training import ROOT, Curve, Job, at, curve, finish, mean_and_spread, options, ours

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER, RESULTS = ROOT / "exp" / "benchmarks" / "fast", ROOT / "benchmarks" / "results"
TASKS = ("cheetah_run", "walker_run", "hopper_stand", "quadruped_walk", "finger_turn_hard", "reacher_hard")
PRESETS = {"fast": ("preset=fast",), "cpu": ("preset=cpu",), "three": ("preset=fast", "n_step=3")}
STEPS, EVERY = 60_000, 5_000
COLORS = {"fast": "#d1495b", "cpu": "#30638e"}
RESAMPLES = 2000


def job(preset: str, task: str, seed: int) -> Job:
    lengths = [f"num_train_steps={STEPS}", f"eval_frequency={EVERY}"]
    return ours(FOLDER / f"{preset}_{task}_s{seed}", task, seed, [*PRESETS[preset], *lengths])


def ratio_of_interquartile_means(scores: dict[str, np.ndarray]) -> dict[str, float]:
    """Returns both interquartile means, the first divided by the second, and that ratio's 95 % interval.

    The interval resamples the seeds of each task.

    Args:
        scores: by preset, of two, (tasks, seeds).
    """
    random = np.random.default_rng(0)
    first, second = scores
    seeds = scores[first].shape[1]
    ratios = []
    for _ in range(RESAMPLES):
        drawn = {name: np.take_along_axis(s, random.integers(seeds, size=s.shape), 1) for name, s in scores.items()}
        ratios.append(trim_mean(drawn[first].ravel(), 0.25) / trim_mean(drawn[second].ravel(), 0.25))
    middle = {name: float(trim_mean(s.ravel(), 0.25)) for name, s in scores.items()}
    low, high = np.percentile(ratios, [2.5, 97.5])
    return {**middle, "ratio": middle[first] / middle[second], "low": float(low), "high": float(high)}


def draw(curves: dict[str, dict[str, list[Curve]]]) -> None:
    figure, axes = plt.subplots(2, -(-len(curves) // 2), figsize=(12, 6.5), layout="constrained", squeeze=False)
    for axis, (task, of_preset) in zip(axes.flat, curves.items(), strict=False):
        for preset, found in of_preset.items():
            for one in found:
                minutes = [0.0, *(second / 60 for second in one.seconds)]
                axis.plot(minutes, [0.0, *one.returns], color=COLORS[preset], alpha=0.3, linewidth=1)
            grid = np.linspace(0, min(one.seconds[-1] for one in found), 40)
            value = np.mean([[at(one, second) for second in grid] for one in found], axis=0)
            axis.plot(grid / 60, value, color=COLORS[preset], linewidth=2.2, label=f"preset={preset}")
        axis.set(title=task, ylim=(0, None), xlabel="minutes of training, one core")
        axis.grid(alpha=0.25)
    axes[0, 0].set_ylabel("return")
    axes[1, 0].set_ylabel("return")
    axes[0, 0].legend(frameon=False)
    figure.savefig(RESULTS / "fast.png", dpi=100)


def main() -> None:
    parser = options(__doc__, TASKS)
    parser.add_argument("--against", choices=("cpu", "three"), default="cpu")
    args = parser.parse_args()
    presets = "fast", args.against
    finish([job(preset, task, seed) for seed in args.seeds for task in args.tasks for preset in presets])
    curves = {t: {p: [curve(job(p, t, s).folder) for s in args.seeds] for p in presets} for t in args.tasks}
    tasks: dict[str, object] = {}
    scores: dict[str, list[list[float]]] = {preset: [] for preset in presets}
    print(f"| task | preset=fast | {args.against}, same time | minutes |\n| --- | --- | --- | --- |")
    for task, of_preset in curves.items():
        limits = [min(a.seconds[-1], b.seconds[-1]) for a, b in zip(*of_preset.values(), strict=True)]
        found = {p: [at(one, limit) for one, limit in zip(of_preset[p], limits, strict=True)] for p in presets}
        for preset in presets:
            scores[preset].append(found[preset])
        cells = [mean_and_spread(found[p]) for p in presets]
        print(f"| {task} | {cells[0]} | {cells[1]} | {mean(limits) / 60:.1f} |")
        tasks[task] = {"seconds": limits, "returns": found}
    overall = ratio_of_interquartile_means({preset: np.array(found) for preset, found in scores.items()})
    means = " and ".join(f"{overall[preset]:.0f}" for preset in presets)
    print(f"interquartile means: {means}, ratio {overall['ratio']:.2f} [{overall['low']:.2f}, {overall['high']:.2f}]")
    made = {**circumstances(), "steps": STEPS, "seeds": args.seeds}
    found_curves = {t: {p: [c._asdict() for c in cs] for p, cs in of.items()} for t, of in curves.items()}
    result = {**made, "interquartile_means": overall, "at_equal_time": tasks, "curves": found_curves}
    name = "fast.json" if args.against == "cpu" else f"fast_against_{args.against}.json"
    (RESULTS / name).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if args.against == "cpu":
        draw(curves)


if __name__ == "__main__":
    main()
