"""The names of tasks: the suite's, and Gymnasium's ids. It imports neither dm_control nor torch, which are slow."""

import difflib
import textwrap
from importlib import import_module

import gymnasium as gym
from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id

from utils import UserError, one_line

EPISODE_LENGTH = 1000  # steps: in the suite's tasks, and for environments without a limit of their own
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


def find_spec(env: str) -> gym.envs.registration.EnvSpec:
    """Returns the registration of an id, of the newest version if it has none; imports the package in an id such as
    my_package:MyEnv-v0, which registers it. Raises UserError for an unknown id, and a package that is not found."""
    module, _, env_id = env.rpartition(":")
    try:
        if module:
            import_module(module)
        if env_id not in gym.registry:
            namespace, name, version = parse_env_id(env_id)
            version = find_highest_version(namespace, name) if version is None else version
            env_id = get_env_id(namespace, name, version)
        return gym.spec(env_id)
    except ModuleNotFoundError as error:
        raise UserError(f"env={env}: {module} cannot be imported ({error}); is its folder in PYTHONPATH?") from error
    except (gym.error.Error, ValueError) as error:
        require_known(env)
        raise UserError(f"env={env}: {one_line(error)}") from error


def list_gymnasium_ids() -> list[str]:
    """Returns the ids that are registered with Gymnasium, only the newest version of each."""
    ours = [spec for spec in gym.registry.values() if not spec.namespace]  # phys2d/CartPole-v1 is another environment
    return sorted({spec.name: spec.id for spec in sorted(ours, key=lambda spec: spec.version or 0)}.values())


def format_tasks() -> str:
    """Returns what `--tasks` prints: the suite's tasks, and the ids that Gymnasium lists."""
    suite, ids = (textwrap.fill(", ".join(names), 120) for names in (SUITE_TASKS, list_gymnasium_ids()))
    return (
        f"env=<task> of the DeepMind Control Suite:\n{suite}\n\n"
        f"env=<id> of Gymnasium; those with discrete actions need agent=sac_discrete:\n{ids}\n\n"
        "env=<package>:<id> of a package that registers its own"
    )


def require_known(name: str) -> None:
    """Raises UserError for an unknown task; one of a package, `package:id`, is looked up when it is made."""
    known = {key for spec in gym.registry.values() for key in (spec.id, spec.name)}  # a name means the newest version
    if name in SUITE_TASKS or name in known or ":" in name:
        return
    by_lower = {other.lower(): other for other in (*SUITE_TASKS, *list_gymnasium_ids())}
    near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"did you mean {', '.join(near)}?" if near else "suite tasks read cheetah_run, Gymnasium ids Pendulum-v1"
    raise UserError(f"env={name}: no such task in the suite or in Gymnasium; {hint}")
