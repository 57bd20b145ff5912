"""Tasks of the Control Suite, one file a domain."""

from importlib import import_module
from importlib.util import find_spec

from physics.task import Task


def find(domain: str, task: str) -> type[Task] | None:
    """Returns the class of a task of the suite; None if it has none here."""
    module = f"{__name__}.{domain.lower()}"
    if find_spec(module) is None:
        return None
    tasks: dict[str, type[Task]] = import_module(module).TASKS
    return tasks.get(task)
