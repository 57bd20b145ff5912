"""Removes one part of preset=fast at a time and compares the returns, on three tasks with three seeds.

    python studies/ablation.py [--tasks …] [--seeds 1 2 3] [--steps 18000]

A run's score is the mean return of its evaluations, in effect the area under its learning curve. For each task, the
table has the mean and the standard deviation over seeds; then the interquartile mean over all runs, and milliseconds
per decision (two environment steps). Writes benchmarks/results/ablation.json. Reuses finished runs in
exp/benchmarks/ablation.
"""

import json
import re
from pathlib import Path
from statistics import mean, median

import instruments  # noqa: F401  (finds benchmarks/)
from machine import circumstances
from scipy.stats import trim_mean
from training import ROOT, curve, finish, mean_and_spread, options, ours

FOLDER, RESULT = ROOT / "exp" / "benchmarks" / "ablation", ROOT / "benchmarks" / "results" / "ablation.json"
TASKS = ("cheetah_run", "walker_run", "reacher_hard")
EVERY, ACTION_REPEAT = 3_000, 2
WITHOUT: dict[str, tuple[str, ...]] = {
    "preset=fast": (),
    "batch normalisation": ("agent.critic.network=null", "agent.actor.network=null"),
    "two-step returns (one)": ("n_step=1",),
    "two-step returns (three)": ("n_step=3",),
    "the temperature: its start and target": ("agent.init_temperature=1", "agent.target_entropy_per_dim=-1"),
}


def folder(steps: int, part: str, task: str, seed: int) -> Path:
    return FOLDER / f"{steps}" / f"{re.sub(r'[^a-z0-9]+', '_', part)}__{task}_s{seed}"


def main() -> None:
    parser = options(__doc__, TASKS)
    parser.add_argument("--steps", type=int, default=18_000)
    args = parser.parse_args()
    lengths = ["preset=fast", f"num_train_steps={args.steps}", f"eval_frequency={EVERY}"]
    finish(
        [
            ours(folder(args.steps, part, task, seed), task, seed, [*lengths, *overrides])
            for seed in args.seeds
            for task in args.tasks
            for part, overrides in WITHOUT.items()
        ]
    )
    print(f"| without | {' | '.join(args.tasks)} | all | ms per decision |\n|{' --- |' * (len(args.tasks) + 3)}")
    parts = {}
    for part in WITHOUT:
        runs = {task: [curve(folder(args.steps, part, task, seed)) for seed in args.seeds] for task in args.tasks}
        scores = {task: [mean(run.returns) for run in of_task] for task, of_task in runs.items()}
        everything = [score for of_task in scores.values() for score in of_task]
        overall = float(trim_mean(everything, 0.25))
        per_decision_ms = median(
            1e3 * ACTION_REPEAT * run.seconds[-1] / run.steps[-1] for of_task in runs.values() for run in of_task
        )
        cells = [mean_and_spread(of_task) for of_task in scores.values()]
        name = "nothing" if part == "preset=fast" else part
        print(f"| {name} | {' | '.join(cells)} | {overall:.0f} | {per_decision_ms:.1f} |")
        parts[name] = {
            "overrides": WITHOUT[part],
            "scores": scores,
            "interquartile_mean": overall,
            "ms_per_decision": per_decision_ms,
            "curves": {task: [run._asdict() for run in of_task] for task, of_task in runs.items()},
        }
    result = {**circumstances(), "seeds": args.seeds, "without": parts}
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
