"""What a class or a function can be called with, as its signature says."""

import inspect
from functools import partial
from typing import Any, NamedTuple, get_type_hints


class Parameter(NamedTuple):
    hint: Any
    required: bool


def parameters_of(target: Any) -> dict[str, Parameter]:
    """What a class or a function can be called with.

    `**keywords` of a class's `__init__` stand for what the next class's takes; where both have a parameter, the
    subclass's counts.
    """
    if isinstance(target, partial):
        unbound = list(parameters_of(target.func).items())[len(target.args) :]
        return {key: Parameter(hint, required and key not in target.keywords) for key, (hint, required) in unbound}
    if not inspect.isclass(target):
        return _named(target)[0]
    found: dict[str, Parameter] = {}
    for owner in target.__mro__:
        if "__init__" in vars(owner):
            own, goes_on = _named(owner.__init__)  # type: ignore[misc]
            found = own | found
            if not goes_on:
                break
    found.pop("self", None)
    return found


def _named(function: Any) -> tuple[dict[str, Parameter], bool]:
    """A function's parameters by name, and whether it hands on others that it does not name."""
    hints = get_type_hints(function, include_extras=True)
    found: dict[str, Parameter] = {}
    goes_on = False
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            goes_on = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            found[name] = Parameter(hints.get(name, Any), parameter.default is parameter.empty)
    return found, goes_on
