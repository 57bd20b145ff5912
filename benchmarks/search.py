"""Which settings learn the most a minute on one core: candidates for preset=fast, each a change to it, over six tasks.

    python benchmarks/search.py [--candidates …] [--tasks …] [--seeds 11]

A candidate's score on a task is its mean return over the second half of the seconds of training that all of them had
there (evaluations apart), so a cheaper decision counts as much as a better one. Seeds are not those of fast.py, which
measures what was chosen. Writes benchmarks/results/search.json and prints the table, best first. Runs in
exp/benchmarks/search that are finished are not made again.
"""

import json
import re
from pathlib import Path
from statistics import mean, median

import numpy as np
from training import ROOT, Curve, at, circumstances, curve, finish, options, ours

FOLDER, RESULT = ROOT / "exp" / "benchmarks" / "search", ROOT / "benchmarks" / "results" / "search.json"
TASKS = ("cheetah_run", "walker_run", "quadruped_walk", "reacher_hard", "finger_spin", "cartpole_swingup")
EVERY = 3_000
# Name: environment steps, which take about as long as everybody's, and overrides.
CANDIDATES: dict[str, tuple[int, tuple[str, ...]]] = {
    "preset=fast": (30_000, ()),
    "one update a decision": (42_000, ("updates_per_step=1",)),
    "critics of 256 units": (27_000, ("agent.critic.hidden_dim=256",)),
    "5-step targets": (30_000, ("n_step=5",)),
    "held noise": (30_000, ("agent/exploration=held",)),
    "actor climbs the mean": (30_000, ("agent.actor_q=mean",)),
    "batches of 64": (36_000, ("agent.batch_size=64",)),
}


def folder(candidate: str, task: str, seed: int) -> Path:
    return FOLDER / f"{re.sub(r'[^a-z0-9]+', '_', candidate)}__{task}_s{seed}"


def late_return(found: Curve, seconds: float) -> float:
    """The mean return between half of the seconds and all of them."""
    return mean(at(found, second) for second in np.linspace(seconds / 2, seconds, 50))


def main() -> None:
    parser = options(__doc__, TASKS, (11,))
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    args = parser.parse_args()
    jobs = []
    for seed in args.seeds:
        for task in args.tasks:
            for name in args.candidates:
                steps, overrides = CANDIDATES[name]
                lengths = [f"num_train_steps={steps}", f"eval_frequency={EVERY}", "num_eval_episodes=5"]
                jobs.append(ours(folder(name, task, seed), task, seed, ["preset=fast", *lengths, *overrides]))
    finish(jobs)
    runs = {(n, t, s): curve(folder(n, t, s)) for n in args.candidates for t in args.tasks for s in args.seeds}
    limits = {(t, s): min(runs[n, t, s].seconds[-1] for n in args.candidates) for t in args.tasks for s in args.seeds}
    scores = {
        n: {t: mean(late_return(runs[n, t, s], limits[t, s]) for s in args.seeds) for t in args.tasks}
        for n in args.candidates
    }
    print(f"| candidate | {' | '.join(args.tasks)} | mean |\n|{' --- |' * (len(args.tasks) + 2)}")
    for name, of_task in sorted(scores.items(), key=lambda one: -mean(one[1].values())):
        cells = " | ".join(f"{score:.0f}" for score in of_task.values())
        print(f"| {name} | {cells} | {mean(of_task.values()):.0f} |")
    print(f"each after {median(limits.values()):.0f} s of training (median), {len(args.seeds)} seeds")
    curves = {name: {f"{t}_s{s}": runs[name, t, s]._asdict() for t, s in limits} for name in args.candidates}
    result = {"seeds": args.seeds, "seconds": {f"{t}_s{s}": limit for (t, s), limit in limits.items()}}
    result |= {"candidates": {name: CANDIDATES[name] for name in args.candidates}, "scores": scores, "curves": curves}
    RESULT.write_text(json.dumps(circumstances() | result, indent=1) + "\n")


if __name__ == "__main__":
    main()
