"""The names of tasks. Imports neither dm_control nor torch: names are checked before these are imported."""

import difflib
from collections.abc import Iterable
from typing import Any

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
    near = _nearest(name, [*SUITE_TASKS, *gymnasium_ids()])
    hint = f"did you mean {', '.join(near)}?" if near else "suite tasks read cheetah_run, Gymnasium ids Pendulum-v1"
    return f"env={name}: no such task in the suite or in Gymnasium; {hint}"


def gymnasium_ids() -> list[str]:
    """Returns the ids that are registered with Gymnasium, only the newest version of each."""
    import gymnasium as gym

    ours = [spec for spec in gym.registry.values() if not spec.namespace]  # phys2d/CartPole-v1 is another environment
    return sorted({spec.name: spec.id for spec in sorted(ours, key=lambda spec: spec.version or 0)}.values())


def unregistered(name: str) -> str:
    """Returns the message for a name such as my_package:MyEnv-v0 if importing the package did not register the id."""
    import gymnasium as gym

    package, _, env_id = name.rpartition(":")
    own = [spec.id for spec in gym.registry.values() if _package_of(spec.entry_point) == package.partition(".")[0]]
    near = _nearest(env_id, own) or sorted(own)[:3]
    listed = ", ".join(f"{package}:{own_id}" for own_id in near)
    hint = f"did you mean {listed}?" if near else f"it has to call gymnasium.register(id='{env_id}', entry_point=...)"
    return f"env={name}: {package} can be imported, but does not register {env_id}; {hint}"


def _package_of(entry_point: Any) -> str:
    """Returns the package of an environment's class, or of its name, such as my_package.envs:MyEnv."""
    module = entry_point if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")
    return module.partition(":")[0].partition(".")[0]


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    by_lower = {other.lower(): other for other in known}
    return [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]


def require_known(name: str) -> None:
    """Raises UserError for an unknown name; a name with a package is checked when that package is imported."""
    if name in SUITE_TASKS or ":" in name or "/" in name:
        return
    import gymnasium as gym

    known = {key for spec in gym.registry.values() for key in (spec.id, spec.name)}  # a name means the newest version
    if name not in known:
        raise UserError(unknown_task(name))
