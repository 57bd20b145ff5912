"""Searches for the settings of preset=strong that learn most from 100 000 steps on one core, on six tasks.

    python studies/strong.py [--candidates …] [--tasks …] [--seeds 11] [--steps 100000] [--report]
    python studies/strong.py --ablation [--report]

A candidate is a list of overrides. Its score on a task is the mean of its returns after half and after all of the
steps; the table also has the seconds of training. The other tasks of the suite are not used here; benchmarks/suite.py
runs them with the chosen settings. A finished run is four lines of benchmarks/results/strong.csv and is not repeated
unless its candidate's settings have changed. --ablation removes one part of preset=strong at a time, with 50 000 steps
and three seeds; the runs of the whole preset come from benchmarks/suite.py. No run averages the actor's weights: the
preset did not do so yet. --report only prints the table.
"""

import re
from collections.abc import Sequence
from itertools import product
from statistics import mean

import instruments  # noqa: F401  (finds benchmarks/)
import suite
from records import Records, digest
from training import ROOT, Curve, Job, curve, finish, mean_and_spread, options, ours

FOLDER = ROOT / "exp" / "benchmarks" / "strong"
RUNS = Records(ROOT / "benchmarks" / "results" / "strong.csv", ("candidate", "task", "seed", "steps", "settings"))
TASKS = ("cheetah_run", "walker_run", "quadruped_walk", "reacher_hard", "hopper_stand", "acrobot_swingup")
FAST = ("preset=fast", "n_step=3", "updates_per_step=2")
HELD = "agent/exploration=held"
XQC = (
    *("agent=xqc", "action_repeat=2", "num_seed_steps=2000", "agent.batch_size=128"),
    *(f"agent.{net}.hidden_dim=128" for net in ("actor", "critic")),
    *(f"agent.{net}.hidden_depth=2" for net in ("actor", "critic")),
    *(f"agent.{net}.network.norm_position=after" for net in ("actor", "critic")),
)
FALLING = tuple(
    f"agent.{part}_lr={{_target_: agent.schedule.Linear, start: 1e-3, final: 1e-4, steps: '${{num_train_steps}}'}}"
    for part in ("alpha", "actor", "critic")
)
UNIT = tuple(f"agent.{net}.network.unit_length=weights" for net in ("actor", "critic"))
BASE = (*FAST, HELD)
ONE_STEP = ("preset=fast", "n_step=1", "updates_per_step=2", HELD)
WIDE = (*ONE_STEP, "agent.critic.hidden_dim=256")
MEAN_TARGETS = "agent.critic.head={_target_: agent.networks.ScalarHead, _partial_: true, target_q: mean}"
MEAN = (*WIDE, MEAN_TARGETS, "agent.actor_q=mean")
CANDIDATES: dict[str, tuple[str, ...]] = {
    "fast, two updates": FAST,
    "fast, two updates, held noise": BASE,
    "base, slow targets, unit lengths, falling rates": (*BASE, "agent.critic_tau=0.005", *UNIT, *FALLING),
    "base, temperature from 1, target entropy 0": (
        *(*BASE, "agent.init_temperature=1", "agent.target_entropy_per_dim=0"),
    ),
    "base, four updates": (*BASE, "updates_per_step=4"),
    "base, critics of 256 units": (*BASE, "agent.critic.hidden_dim=256"),
    "base, noise held longer, also at first": (*BASE, "agent.exploration.exponent=1", "seed_policy=agent"),
    "small xqc, held noise, three-step returns": (*XQC, HELD, "n_step=3"),
    "base, falling rates": (*BASE, *FALLING),
    "base, unit lengths": (*BASE, *UNIT),
    "base, one-step returns": ONE_STEP,
    "one-step, four updates": (*ONE_STEP, "updates_per_step=4"),
    "one-step, critics of 256 units": WIDE,
    "wide, unit lengths": (*WIDE, *UNIT),
    "wide, four updates": (*WIDE, "updates_per_step=4", "agent.actor_update_frequency=4"),
    "one-step, critics of 512 units": (*ONE_STEP, "agent.critic.hidden_dim=512"),
    "wide, targets of the mean": (*WIDE, MEAN_TARGETS),
    "wide, mean": MEAN,
    "wide, mean, four updates": (*MEAN, "updates_per_step=4", "agent.actor_update_frequency=4"),
    "wide, mean, three-step returns": (*BASE, "agent.critic.hidden_dim=256", MEAN_TARGETS, "agent.actor_q=mean"),
}
WHOLE = "preset=strong"
WITHOUT = {
    "the mean of the critics (their minimum instead)": (WHOLE, "agent.actor_q=min", "agent.critic.head.target_q=min"),
    "noise that is held for several decisions": (WHOLE, "agent/exploration=none"),
    "wide critics (128 units)": (WHOLE, "agent.critic.hidden_dim=128"),
    "two updates a decision (one)": (WHOLE, "updates_per_step=1"),
}
EVERYTHING = CANDIDATES | WITHOUT
ABLATION_STEPS, ABLATION_SEEDS = 50_000, (1, 2, 3)

Key = tuple[str, str, int]  # candidate, task, seed


def folder(candidate: str, task: str, seed: int, steps: int) -> str:
    return f"{re.sub(r'[^a-z0-9]+', '_', candidate)}_{steps // 1000}k__{task}_s{seed}"


def job(candidate: str, task: str, seed: int, steps: int) -> Job:
    lengths = [f"num_train_steps={steps}", f"eval_frequency={steps // 4}"]
    overrides = [*EVERYTHING[candidate], *lengths, "agent.actor_average_share=0"]
    return ours(FOLDER / folder(candidate, task, seed, steps), task, seed, overrides, checkpoint_frequency=10_000)


def settings(candidate: str) -> str:
    """Returns a digest of the candidate's settings."""
    overrides = EVERYTHING.get(candidate)
    return digest([overrides, suite.BEFORE] if candidate in WITHOUT else overrides)


def recorded(steps: int) -> dict[Key, Curve]:
    """Returns the recorded runs of `steps` steps that were made with their candidate's present settings."""
    return {
        (candidate, task, int(seed)): run
        for (candidate, task, seed, length, run_settings), run in RUNS.read().items()
        if int(length) == steps and run_settings == settings(candidate)
    }


def score(run: Curve, steps: int) -> float:
    at_step = dict(zip(run.steps, run.returns, strict=True))
    return (at_step[steps / 2] + at_step[steps]) / 2


def seconds_until(run: Curve, steps: int) -> float:
    return run.seconds[run.steps.index(steps)]


def print_table(rows: dict[str, dict[str, list[Curve]]], tasks: Sequence[str], steps: int) -> None:
    """Prints a row for each candidate: its score on each task, their mean, means by seed, seconds of training."""
    print(f"| candidate | {' | '.join(tasks)} | mean | by seed | seconds |\n|{' --- |' * (len(tasks) + 4)}")
    for name, of_task in rows.items():
        if not any(of_task.values()):
            continue
        scores = [[score(run, steps) for run in runs] for runs in of_task.values()]
        cells = [mean_and_spread(values) if values else "" for values in scores]
        overall = f"{mean(map(mean, scores)):.0f}" if all(scores) else ""
        complete = all(len(values) == len(scores[0]) > 0 for values in scores)
        by_seed = ", ".join(f"{mean(of_seed):.0f}" for of_seed in zip(*scores, strict=True)) if complete else ""
        seconds = mean(seconds_until(run, steps) for runs in of_task.values() for run in runs)
        print(f"| {name} | {' | '.join([*cells, overall, by_seed])} | {seconds:.0f} |")


def main() -> None:
    parser = options(__doc__, TASKS, (11,))
    parser.add_argument("--candidates", nargs="+", choices=EVERYTHING, default=list(CANDIDATES))
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    if args.ablation:
        args.candidates, args.steps, args.seeds = list(WITHOUT), ABLATION_STEPS, ABLATION_SEEDS
    wanted = list(product(args.seeds, args.tasks, args.candidates))
    if not args.report:
        done = recorded(args.steps)
        missing = [(c, task, seed) for seed, task, c in wanted if (c, task, seed) not in done]

        def keep(index: int) -> None:
            candidate, task, seed = missing[index]
            key = (candidate, task, seed, args.steps, settings(candidate))
            RUNS.add(key, curve(job(candidate, task, seed, args.steps).folder))

        finish([job(*key, args.steps) for key in missing], after=keep)
    runs = recorded(args.steps)
    rows = {
        candidate: {
            task: [runs[candidate, task, s] for s in args.seeds if (candidate, task, s) in runs] for task in args.tasks
        }
        for candidate in args.candidates
    }
    if args.ablation:
        whole = suite.recorded(suite.BEFORE)
        rows = {WHOLE: {task: [whole[task, s] for s in args.seeds if (task, s) in whole] for task in args.tasks}} | rows
    print_table(rows, args.tasks, args.steps)


if __name__ == "__main__":
    main()
