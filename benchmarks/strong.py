"""Which settings learn the most from 100 000 steps on one core: candidates for preset=strong, over six tasks.

    python benchmarks/strong.py [--candidates …] [--tasks …] [--seeds 11] [--steps 100000] [--report]

Every candidate is a list of overrides. Its score on a task is the mean of its returns at half and at all of the steps;
beside it stand the seconds of training that they took. The other tasks of the suite are not looked at here: suite.py
runs them, with what was chosen. Writes benchmarks/results/strong_100k.json and prints the table. Finished runs in
exp/benchmarks/strong are not made again unless a YAML file has changed since, and are in the table too. With --report
nothing is run.
"""

import json
import re
from itertools import product
from statistics import mean

from training import ROOT, Job, circumstances, curve, finish, has_result, options, ours

FOLDER, RESULTS = ROOT / "exp" / "benchmarks" / "strong", ROOT / "benchmarks" / "results"
TASKS = ("cheetah_run", "walker_run", "quadruped_walk", "reacher_hard", "hopper_stand", "acrobot_swingup")
FAST = ("preset=fast", "updates_per_step=2")
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
ONE_STEP = (*BASE, "n_step=1")
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
    "wide, mean, three-step returns": (*MEAN, "n_step=3"),
    "wide, mean, no held noise": (*MEAN, "agent/exploration=none"),
    "mean, critics of 128 units": (*MEAN, "agent.critic.hidden_dim=128"),
}


def folder(candidate: str, task: str, seed: int, steps: int) -> str:
    return f"{re.sub(r'[^a-z0-9]+', '_', candidate)}_{steps // 1000}k__{task}_s{seed}"


def job(candidate: str, task: str, seed: int, steps: int) -> Job:
    lengths = [f"num_train_steps={steps}", f"eval_frequency={steps // 4}"]
    return ours(FOLDER / folder(candidate, task, seed, steps), task, seed, [*CANDIDATES[candidate], *lengths])


def main() -> None:
    parser = options(__doc__, TASKS, (11,))
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    if not args.report:
        finish([job(*key, args.steps) for key in product(args.candidates, args.tasks, args.seeds)])
    found = {
        name: {
            task: [curve(job(name, task, seed, args.steps).folder)._asdict() for seed in args.seeds]
            for task in args.tasks
            if all(has_result(job(name, task, seed, args.steps)) for seed in args.seeds)
        }
        for name in CANDIDATES
    }
    found = {name: curves for name, curves in found.items() if curves}
    print(f"| candidate | {' | '.join(args.tasks)} | mean | seconds |\n|{' --- |' * (len(args.tasks) + 3)}")
    for name, of_task in found.items():
        scores = {t: mean((c["returns"][1] + c["returns"][3]) / 2 for c in curves) for t, curves in of_task.items()}
        cells = [f"{scores[task]:.0f}" if task in scores else "" for task in args.tasks]
        whole = [f"{mean(scores.values()):.0f}"] if all(cells) else [""]
        seconds = [f"{mean(c['seconds'][-1] for curves in of_task.values() for c in curves):.0f}"]
        print(f"| {name} | {' | '.join([*cells, *whole, *seconds])} |")
    made = {name: CANDIDATES[name] for name in found}
    result = {"steps": args.steps, "seeds": args.seeds, "candidates": made, "curves": found}
    (RESULTS / f"strong_{args.steps // 1000}k.json").write_text(json.dumps(circumstances() | result, indent=1) + "\n")


if __name__ == "__main__":
    main()
