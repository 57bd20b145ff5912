"""Searches for the settings of preset=fast that learn most per minute on one core, on six tasks.

    python studies/search.py [--candidates …] [--tasks …] [--seeds 11]

All candidates are compared over the same training time (without evaluations): a candidate's score on a task is its mean
return over the second half, so a cheaper decision counts as much as a better one. studies/fast.py measures the preset
with other seeds. Writes benchmarks/results/search.json and prints the table. All finished runs in exp/benchmarks/search
are reused and appear in the table.
"""

import json
import re
from itertools import product
from pathlib import Path
from statistics import mean, median

import instruments  # noqa: F401  (finds benchmarks/)
import numpy as np
from machine import circumstances
from training import ROOT, Curve, Job, at, curve, done, finish, options, ours

FOLDER, RESULT = ROOT / "exp" / "benchmarks" / "search", ROOT / "benchmarks" / "results" / "search.json"
TASKS = ("cheetah_run", "walker_run", "quadruped_walk", "reacher_hard", "finger_spin", "cartpole_swingup")
EVERY = 3_000
# Updates per decision; every second one updates the actor.
TWO, ONE = ("n_step=3", "updates_per_step=2"), ("n_step=3", "updates_per_step=1")
# Name: number of environment steps, chosen for about the same time as the other candidates, and overrides.
CANDIDATES: dict[str, tuple[int, tuple[str, ...]]] = {
    "two updates": (30_000, TWO),
    "two updates, critics of 256 units": (27_000, (*TWO, "agent.critic.hidden_dim=256")),
    "two updates, 5-step targets": (30_000, ("n_step=5", "updates_per_step=2")),
    "two updates, held noise": (30_000, (*TWO, "agent/exploration=held")),
    "two updates, the actor climbs the mean": (30_000, (*TWO, "agent.actor_q=mean")),
    "two updates, batches of 64": (36_000, (*TWO, "agent.batch_size=64")),
    "one update": (54_000, ONE),
    "one update, the actor climbs the mean": (54_000, (*ONE, "agent.actor_q=mean")),
    "one update, of the actor too": (42_000, (*ONE, "agent.actor_update_frequency=1")),
    "one update, critics of 256 units": (30_000, (*ONE, "agent.critic.hidden_dim=256")),
    "three updates every two decisions": (39_000, ("n_step=3", "updates_per_step=1.5")),
}


def folder(candidate: str, task: str, seed: int) -> Path:
    return FOLDER / f"{re.sub(r'[^a-z0-9]+', '_', candidate)}__{task}_s{seed}"


def job(candidate: str, task: str, seed: int) -> Job:
    steps, overrides = CANDIDATES[candidate]
    lengths = [f"num_train_steps={steps}", f"eval_frequency={EVERY}", "num_eval_episodes=5"]
    return ours(folder(candidate, task, seed), task, seed, ["preset=fast", *lengths, *overrides])


def late_return(run: Curve, seconds: float) -> float:
    """Returns the mean return over the second half of the first `seconds` of training."""
    return mean(at(run, second) for second in np.linspace(seconds / 2, seconds, 50))


def main() -> None:
    parser = options(__doc__, TASKS, (11,))
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    args = parser.parse_args()
    finish([job(name, task, seed) for seed, task, name in product(args.seeds, args.tasks, args.candidates)])
    keys = product(CANDIDATES, args.tasks, args.seeds)
    runs = {key: curve(folder(*key)) for key in keys if done(job(*key))}  # those of earlier calls included
    limits = {
        (t, s): min(run.seconds[-1] for (_, task, seed), run in runs.items() if (task, seed) == (t, s))
        for t, s in product(args.tasks, args.seeds)
    }
    scores: dict[str, dict[str, list[float]]] = {name: {task: [] for task in args.tasks} for name in CANDIDATES}
    for (name, task, seed), run in runs.items():
        scores[name][task].append(late_return(run, limits[task, seed]))
    print(f"| candidate | {' | '.join(args.tasks)} | mean |\n|{' --- |' * (len(args.tasks) + 2)}")
    for name, of_task in scores.items():
        cells = [f"{mean(found):.0f}" if len(found) == len(args.seeds) else "" for found in of_task.values()]
        overall = f"{mean(mean(found) for found in of_task.values()):.0f}" if all(cells) else ""
        print(f"| {name} | {' | '.join(cells)} | {overall} |")
    print(f"each after {median(limits.values()):.0f} s of training (median)")
    result = {"seeds": args.seeds, "seconds": {f"{t}_s{s}": limit for (t, s), limit in limits.items()}}
    found_curves = {" ".join((name, f"{task}_s{seed}")): run._asdict() for (name, task, seed), run in runs.items()}
    result |= {"candidates": CANDIDATES, "scores": scores, "curves": found_curves}
    RESULT.write_text(json.dumps(circumstances() | result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
