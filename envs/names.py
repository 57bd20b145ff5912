"""The names that tasks have. Needs neither dm_control nor torch: a name is looked at before they are imported."""

import difflib

from utils import UserError

_TASKS = {  # of the DeepMind Control Suite, by domain
    "acrobot": "swingup swingup_sparse",
    "ball_in_cup": "catch",
    "cartpole": "balance balance_sparse swingup swingup_sparse two_poles three_poles",
    "cheetah": "run",
    "dog": "stand walk trot run fetch",
    "finger": "spin turn_easy turn_hard",
    "fish": "upright swim",
    "hopper": "stand hop",
    "humanoid": "stand walk run run_pure_state",
    "humanoid_CMU": "stand walk run",
    "lqr": "lqr_2_1 lqr_6_2",
    "manipulator": "bring_ball bring_peg insert_ball insert_peg",
    "pendulum": "swingup",
    "point_mass": "easy hard",
    "quadruped": "walk run escape fetch",
    "reacher": "easy hard",
    "stacker": "stack_2 stack_4",
    "swimmer": "swimmer6 swimmer15",
    "walker": "stand walk run",
}
SUITE_TASKS = {f"{domain}_{task}": (domain, task) for domain, tasks in _TASKS.items() for task in tasks.split()}


def unknown(name: str) -> str:
    """What is said of a name that neither the suite nor Gymnasium knows."""
    import gymnasium as gym  # not before: the suite's tasks do without, and it takes a while

    ids = [spec for spec in gym.registry if "/" not in spec]
    by_lower = {known.lower(): known for known in [*SUITE_TASKS, *ids]}
    near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"did you mean {', '.join(near)}?" if near else "suite tasks read cheetah_run, Gymnasium ids Pendulum-v1"
    return f"env={name}: no such task in the suite or in Gymnasium; {hint}"


def require_known(name: str) -> None:
    """Raises UserError for a name that cannot be one; of a name with a package only that package can tell."""
    if name in SUITE_TASKS or ":" in name or "/" in name:
        return
    import gymnasium as gym  # not before: see above

    if not any(name in (spec.id, spec.name) for spec in gym.registry.values()):  # without a version it is the newest
        raise UserError(unknown(name))
