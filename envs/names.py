"""The names of tasks. Imports neither dm_control nor torch: names are checked before these are imported."""

import difflib

import gymnasium as gym

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


def list_gymnasium_ids() -> list[str]:
    """Returns the ids that are registered with Gymnasium, only the newest version of each."""
    ours = [spec for spec in gym.registry.values() if not spec.namespace]  # phys2d/CartPole-v1 is another environment
    return sorted({spec.name: spec.id for spec in sorted(ours, key=lambda spec: spec.version or 0)}.values())


def require_known(name: str) -> None:
    """Raises UserError for an unknown task; one of a package, `package:id`, is looked up when it is made."""
    known = {key for spec in gym.registry.values() for key in (spec.id, spec.name)}  # a name means the newest version
    if name in SUITE_TASKS or name in known or ":" in name:
        return
    by_lower = {other.lower(): other for other in (*SUITE_TASKS, *list_gymnasium_ids())}
    near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"did you mean {', '.join(near)}?" if near else "suite tasks read cheetah_run, Gymnasium ids Pendulum-v1"
    raise UserError(f"env={name}: no such task in the suite or in Gymnasium; {hint}")
