"""Searches for what limits preset=pixels_cpu on finger_spin, by training its agent from pixels or from states.

    python studies/finger_spin.py [--obs states] [--tasks finger_spin] [--seeds 1 2] [--variants …] [--report]

Each variant changes a setting of the preset and trains for 100 000 steps from pixels, or 50 000 from states, evaluated
with ten episodes every 10 000. Its evaluations are lines of benchmarks/results/pixels/finger_spin_<obs>.csv, and it is
not repeated.
"""

from statistics import mean

import instruments  # noqa: F401  (finds benchmarks/)
from records import Records
from training import ROOT, curve, finish, options, ours

EVERY = 10_000
BASES: dict[str, tuple[str, ...]] = {
    "pixels": ("preset=pixels_cpu", "num_train_steps=100000", f"eval_frequency={EVERY}"),
    "states": (
        *("agent=drq_norm", "agent/encoder=none", "agent/augmentation=none", "agent/exploration=held"),
        *("from_pixels=false", "frame_stack=1", "action_repeat=2", "num_seed_steps=1000", "updates_per_step=1"),
        *("n_step=3", "agent.batch_size=128", "agent.critic.hidden_dim=256", "agent.actor.hidden_dim=256"),
        *("num_train_steps=50000", f"eval_frequency={EVERY}"),
    ),
}
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
    parser = options(__doc__, ("finger_spin",), (1, 2))
    parser.add_argument("--obs", choices=BASES, default="states")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    folder = ROOT / "exp" / "benchmarks" / f"finger_spin_{args.obs}"
    path = ROOT / "benchmarks" / "results" / "pixels" / f"finger_spin_{args.obs}.csv"
    records = Records(path, ("variant", "task", "seed"))
    keys = [(name, task, seed) for seed in args.seeds for task in args.tasks for name in args.variants]
    if not args.report:
        missing = [key for key in keys if (key[0], key[1], str(key[2])) not in records.read()]
        jobs = [
            ours(
                folder / f"{list(VARIANTS).index(name)}_{task}_s{seed}",
                task,
                seed,
                (*BASES[args.obs], *VARIANTS[name]),
                EVERY,
            )
            for name, task, seed in missing
        ]
        finish(jobs, after=lambda index: records.add(missing[index], curve(jobs[index].folder)))
    for name in VARIANTS:
        returns = [run.returns[-1] for (variant, _, _), run in records.read().items() if variant == name]
        print(
            f"{name}: {', '.join(f'{value:.0f}' for value in returns)}; mean {mean(returns):.0f}" if returns else name
        )


if __name__ == "__main__":
    main()
