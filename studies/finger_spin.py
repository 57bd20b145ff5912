"""Searches for what limits preset=pixels_cpu on finger_spin, by training its agent from states.

    python studies/finger_spin.py [--tasks finger_spin] [--seeds 1 2] [--report]

Each variant changes a setting of the preset's agent and trains for 50 000 steps, evaluated with ten episodes every
10 000. Its evaluations are lines of benchmarks/results/pixels/finger_spin_states.csv, and it is not repeated.
"""

from statistics import mean

import instruments  # noqa: F401  (finds benchmarks/)
from records import Records
from training import ROOT, curve, finish, options, ours

FOLDER = ROOT / "exp" / "benchmarks" / "finger_spin"
RUNS = Records(ROOT / "benchmarks" / "results" / "pixels" / "finger_spin_states.csv", ("variant", "task", "seed"))
STEPS, EVERY = 50_000, 10_000
BASE = (
    *("agent=drq_norm", "agent/encoder=none", "agent/augmentation=none", "agent/exploration=held", "from_pixels=false"),
    *("frame_stack=1", "action_repeat=2", "num_seed_steps=1000", "updates_per_step=1", "n_step=3"),
    *("agent.batch_size=128", "agent.critic.hidden_dim=256", "agent.actor.hidden_dim=256"),
    *(f"num_train_steps={STEPS}", f"eval_frequency={EVERY}"),
)
LOWER = tuple(f"agent.{part}_lr=3e-4" for part in ("actor", "critic", "alpha"))
VARIANTS: dict[str, tuple[str, ...]] = {
    "as in the preset": (),
    "n_step=1": ("n_step=1",),
    "agent/exploration=none": ("agent/exploration=none",),
    "n_step=1 agent/exploration=none": ("n_step=1", "agent/exploration=none"),
    "learning rates of 3e-4": LOWER,
    "agent.batch_size=256": ("agent.batch_size=256",),
    "updates_per_step=2": ("updates_per_step=2",),
}


def main() -> None:
    parser = options(__doc__, ("finger_spin",))
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    keys = [(name, task, seed) for seed in args.seeds for task in args.tasks for name in VARIANTS]
    if not args.report:
        missing = [key for key in keys if (key[0], key[1], str(key[2])) not in RUNS.read()]
        jobs = [
            ours(FOLDER / f"{list(VARIANTS).index(name)}_{task}_s{seed}", task, seed, (*BASE, *VARIANTS[name]), EVERY)
            for name, task, seed in missing
        ]
        finish(jobs, after=lambda index: RUNS.add(missing[index], curve(jobs[index].folder)))
    for name in VARIANTS:
        returns = [run.returns[-1] for (variant, _, _), run in RUNS.read().items() if variant == name]
        print(
            f"{name}: {', '.join(f'{value:.0f}' for value in returns)}; mean {mean(returns):.0f}" if returns else name
        )


if __name__ == "__main__":
    main()
