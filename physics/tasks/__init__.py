"""Tasks of the Control Suite, one file a domain."""

from importlib import import_module
from importlib.util import find_spec

from envs.names import SUITE_TASKS
from physics.task import Task


def of(name: str) -> type[Task]:
    """Returns the class of a task that has one."""
    task = find(*SUITE_TASKS[name])
    assert task is not None, name
    return task


def find(domain: str, task: str) -> type[Task] | None:
    """Returns the class of a task of the suite; None if it has none here."""
    module = f"{__name__}.{domain.lower()}"
    if find_spec(module) is None:
        return None
    tasks: dict[str, type[Task]] = import_module(module).TASKS
    return tasks.get(task)


def on_device() -> list[str]:
    """Returns the names of the tasks that mujoco-warp steps as MuJoCo does (tests/physics/test_warp.py)."""
    found = {name: find(*names) for name, names in SUITE_TASKS.items()}
    return [name for name, task in found.items() if task and task.on_device]
