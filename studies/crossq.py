"""Compares this project's CrossQ with that of SBX at the same sizes: returns, and environment steps per second.

    python studies/crossq.py [--tasks …] [--seeds 1 2 3] [--steps 20000]

Trains on three tasks with three seeds: an actor of 2 x 128 units, critics of 2 x 256, batches of 256, two environment
steps per decision. Two runs, one of each project, train at a time, each on its own core. Both projects initialise their
networks with truncated normal weights. Writes benchmarks/results/crossq.json and crossq.png and prints the table. Needs
.venv-bench (`make .venv-bench/stamp`). Reuses finished pairs of runs in exp/benchmarks/crossq.
"""

import json
import shutil
from pathlib import Path
from statistics import mean, median

import instruments  # noqa: F401  (finds benchmarks/)
import matplotlib
from machine import circumstances
from training import ROOT, Job, curve, done, finish, mean_and_spread, options, ours

from study.runs import read

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER, RESULTS = ROOT / "exp" / "benchmarks" / "crossq", ROOT / "benchmarks" / "results"
TASKS = ("cheetah_run", "walker_walk", "finger_spin")
EVERY = 5_000
SIZES = ("agent=crossq", "agent.critic.hidden_dim=256", "agent.actor.hidden_dim=128", "action_repeat=2")
WARM_UP_STEPS = 2_000  # not counted in the speed: random actions, then the compilation of updates
COLORS = {"ours": "#d1495b", "sbx": "#30638e"}


def job(system: str, task: str, seed: int, steps: int) -> Job:
    folder = FOLDER / f"{steps}" / f"{system}_{task}_s{seed}"
    if system == "ours":
        lengths = [f"num_train_steps={steps}", f"eval_frequency={EVERY}", "num_seed_steps=1000"]
        return ours(folder, task, seed, [*SIZES, *lengths])
    worker = [ROOT / ".venv-bench/bin/python", ROOT / "studies/sbx_crossq.py"]
    return Job(folder, [str(word) for word in (*worker, task, seed, steps, EVERY, folder)], "result.json")


def evaluations_of(system: str, folder: Path) -> tuple[list[float], list[float], float]:
    """Returns the steps and returns of the evaluations, and steps per second of training without them."""
    if system == "sbx":
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        rows = result["evaluations"]
        return [row["step"] for row in rows], [row["episode_reward"] for row in rows], result["steps_per_second"]
    run = curve(folder)
    episodes = zip(*read(folder / "train.csv")["duration"], strict=True)
    warm_up_s = sum(seconds for step, seconds in episodes if step <= WARM_UP_STEPS)
    return run.steps, run.returns, (run.steps[-1] - WARM_UP_STEPS) / (run.seconds[-1] - warm_up_s)


def main() -> None:
    parser = options(__doc__, TASKS)
    parser.add_argument("--steps", type=int, default=20_000)
    args = parser.parse_args()
    if args.steps % EVERY or args.steps <= WARM_UP_STEPS:
        parser.error(f"--steps {args.steps}: take a multiple of {EVERY}")
    pairs = [(task, seed) for seed in args.seeds for task in args.tasks]
    for task, seed in pairs:  # one pair at a time
        pair = [job(system, task, seed, args.steps) for system in (COLORS if seed % 2 else reversed(COLORS))]
        if not all(done(run) for run in pair):
            for run in pair:  # train both again: speeds are comparable only if the two trained at the same time
                shutil.rmtree(run.folder, ignore_errors=True)
            finish(pair)
    runs = {
        task: {s: [evaluations_of(s, job(s, task, seed, args.steps).folder) for seed in args.seeds] for s in COLORS}
        for task in args.tasks
    }
    figure, axes = plt.subplots(1, len(runs), figsize=(4 * len(runs), 3.6), layout="constrained", squeeze=False)
    tasks = {}
    print("| task | ours | SBX | steps/s, ours over SBX |\n| --- | --- | --- | --- |")
    for axis, (task, of_system) in zip(axes[0], runs.items(), strict=True):
        last = {s: [returns[-1] for _, returns, _ in evaluations] for s, evaluations in of_system.items()}
        speed = {s: [speed for *_, speed in evaluations] for s, evaluations in of_system.items()}
        ratio = median(a / b for a, b in zip(speed["ours"], speed["sbx"], strict=True))
        cells = [mean_and_spread(last[s]) for s in COLORS]
        print(f"| {task} | {cells[0]} | {cells[1]} | {ratio:.2f} |")
        curves = {s: [{"steps": steps, "returns": returns} for steps, returns, _ in f] for s, f in of_system.items()}
        tasks[task] = {"last_returns": last, "steps_per_second": speed, "speed_ratio": ratio, "curves": curves}
        for system, evaluations in of_system.items():
            for steps, returns, _ in evaluations:
                axis.plot(steps, returns, color=COLORS[system], alpha=0.3, linewidth=1)
            means = [mean(values) for values in zip(*(returns for _, returns, _ in evaluations), strict=True)]
            axis.plot(evaluations[0][0], means, color=COLORS[system], linewidth=2.2, label=system)
        axis.set(title=task, xlabel="environment steps", ylim=(0, None))
        axis.grid(alpha=0.25)
    axes[0, 0].legend(frameon=False)
    axes[0, 0].set_ylabel("return")
    figure.savefig(RESULTS / "crossq.png", dpi=100)
    peer = json.loads(
        (job("sbx", args.tasks[0], args.seeds[0], args.steps).folder / "result.json").read_text(encoding="utf-8")
    )
    result = {**circumstances(), "versions": peer["versions"], "seeds": args.seeds, "tasks": tasks}
    (RESULTS / "crossq.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
