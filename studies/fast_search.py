"""Searches for settings of preset=fast that return more after the 80 000 steps of `make train`, in the same time.

    python studies/fast_search.py [--candidates …] [--tasks cheetah_run] [--seeds 11 12] [--report]

A candidate is a list of overrides on top of the preset. A run is evaluated every 20 000 steps with twenty episodes; its
evaluations are lines of benchmarks/results/fast_search.csv, and it is not repeated. Prints last returns and the median
seconds of training on one core, without evaluations. The preset's reported seeds, 1 to 3, are not searched on.
"""

from itertools import product
from statistics import mean, median

import instruments  # noqa: F401  (finds benchmarks/)
from records import Records
from training import ROOT, curve, finish, options, ours

FOLDER = ROOT / "exp" / "benchmarks" / "fast_search"
RUNS = Records(ROOT / "benchmarks" / "results" / "fast_search.csv", ("candidate", "task", "seed"))
STEPS, EVERY = 80_000, 20_000
THREE = ("n_step=3",)  # of the preset when the search began


def rates(final: float) -> tuple[str, ...]:
    """Returns overrides that hold the learning rates for two thirds of a run, then move them linearly to `final`."""
    schedule = f"{{_target_: agent.schedule.Piecewise, points: [[{2 * STEPS // 3}, 1e-3], [{STEPS}, {final}]]}}"
    return tuple(f"agent.{part}_lr={schedule}" for part in ("alpha", "actor", "critic"))


CANDIDATES: dict[str, tuple[str, ...]] = {
    "rows of three steps": THREE,
    "averaged actor": (*THREE, "agent.actor_average_share=0.0005"),
    "rates fall to a tenth": (*THREE, *rates(1e-4)),
    "mean of the critics": (
        *THREE,
        "agent.critic.head={_target_: agent.networks.ScalarHead, _partial_: true, target_q: mean}",
    ),
    "one critic, two updates": (*THREE, "agent.critic.num_critics=1", "updates_per_step=2"),
    "rows of two steps": ("n_step=2",),
    "rows of one step": ("n_step=1",),
    "rows of two steps, rates fall to a tenth": ("n_step=2", *rates(1e-4)),
    "rows of two steps, averaged actor": ("n_step=2", "agent.actor_average_share=0.0005"),
    "batches of 64, two updates": (*THREE, "agent.batch_size=64", "updates_per_step=2"),
    "critics of 192 units": (*THREE, "agent.critic.hidden_dim=192"),
}


def main() -> None:
    parser = options(__doc__, ("cheetah_run",), (11, 12))
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    keys = [(name, task, str(seed)) for seed, task, name in product(args.seeds, args.tasks, args.candidates)]
    if not args.report:
        missing = [key for key in keys if key not in RUNS.read()]
        lengths = ["preset=fast", f"num_train_steps={STEPS}", f"eval_frequency={EVERY}", "num_eval_episodes=20"]
        jobs = [
            ours(
                FOLDER / f"{list(CANDIDATES).index(name)}_{task}_s{seed}",
                task,
                int(seed),
                (*lengths, *CANDIDATES[name]),
                EVERY,
            )
            for name, task, seed in missing
        ]
        finish(jobs, after=lambda index: RUNS.add(missing[index], curve(jobs[index].folder)))
    runs = RUNS.read()
    for name, task in product(args.candidates, args.tasks):
        chosen = [runs[key] for key in keys if key[:2] == (name, task) and key in runs]
        if chosen:
            returns = [run.returns[-1] for run in chosen]
            shown = ", ".join(f"{value:.0f}" for value in returns)
            seconds = median(run.seconds[-1] for run in chosen)
            print(f"{name}, {task}: {shown}; mean {mean(returns):.0f}; {seconds:.0f} s")


if __name__ == "__main__":
    main()
