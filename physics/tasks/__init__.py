"""Tasks of the Control Suite, one file a domain."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from settings.env_ids import SUITE_TASKS


def find(name: str) -> Any:
    """Returns the class of a task of the suite, a subclass of Task; None if it has none here."""
    domain, task = SUITE_TASKS[name]
    module = f"{__name__}.{domain.lower()}"
    if find_spec(module) is None:
        return None
    return import_module(module).TASKS.get(task)
