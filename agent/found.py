"""What is found in an agent's attributes, so that its author declares nothing twice."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from agent.execution.views import is_view


def modules(agent: Any) -> dict[str, nn.Module]:
    """Its modules, by attribute; not views, which have another's state."""
    return {name: value for name, value in vars(agent).items() if isinstance(value, nn.Module) and not is_view(value)}


def stateful(agent: Any) -> dict[str, Any]:
    """Its attributes that have a state of their own to save: modules and whatever else has `load_state_dict`."""
    has_state = {name: value for name, value in vars(agent).items() if hasattr(value, "load_state_dict")}
    return {name: value for name, value in has_state.items() if not (isinstance(value, nn.Module) and is_view(value))}


def parts(of: Iterable[Any], kind: type) -> list[Any]:
    """Everything of a kind in some objects, or in the modules among them, once each and in order."""
    found: dict[int, Any] = {}
    for value in of:
        candidates = value.modules() if isinstance(value, nn.Module) else [value]
        found |= {id(part): part for part in candidates if isinstance(part, kind)}
    return list(found.values())
