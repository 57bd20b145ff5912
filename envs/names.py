"""The names of tasks. Imports neither dm_control nor torch: names are checked before these are imported."""

import difflib

from utils import UserError

_TASKS = {  # domain of the DeepMind Control Suite -> its tasks
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


def unknown_task(name: str) -> str:
    """Returns the message for a name that neither the suite nor Gymnasium has."""
    import gymnasium as gym  # imported late: it is slow, and suite tasks do not need it here

    ids = [spec for spec in gym.registry if "/" not in spec]
    by_lower = {known.lower(): known for known in [*SUITE_TASKS, *ids]}
    near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"did you mean {', '.join(near)}?" if near else "suite tasks read cheetah_run, Gymnasium ids Pendulum-v1"
    return f"env={name}: no such task in the suite or in Gymnasium; {hint}"


def require_known(name: str) -> None:
    """Raises UserError for an unknown name; a name with a package is checked when that package is imported."""
    if name in SUITE_TASKS or ":" in name or "/" in name:
        return
    import gymnasium as gym  # imported late, as above

    if not any(
        name in (spec.id, spec.name) for spec in gym.registry.values()
    ):  # an id without a version means the newest
        raise UserError(unknown_task(name))
