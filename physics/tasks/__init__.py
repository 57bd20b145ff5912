"""Tasks of the Control Suite, one file a domain."""

from importlib import import_module
from importlib.util import find_spec

from physics.task import Task
from settings.env_ids import SUITE_TASKS


def get(name: str) -> type[Task]:
    """Returns the class of a task that has one."""
    task = find(name)
    assert task is not None, name
    return task


def find(name: str) -> type[Task] | None:
    """Returns the class of a task of the suite; None if it has none here."""
    domain, task = SUITE_TASKS[name]
    module = f"{__name__}.{domain.lower()}"
    if find_spec(module) is None:
        return None
    tasks: dict[str, type[Task]] = import_module(module).TASKS
    return tasks.get(task)
