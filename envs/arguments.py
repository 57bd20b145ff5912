"""Checks `env_kwargs` against the signature of the environment's class."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from settings.signatures import Parameter, fit, is_plain, parameters
from utils import UserError

RENDER_MODE = "render_mode"  # set by the run, which renders videos


def known(make: Callable[..., Any], excluded: tuple[str, ...] = ()) -> dict[str, Parameter]:
    """Returns the parameters of an environment's class or function, except the excluded ones."""
    try:
        found = parameters(make)
    except (NameError, TypeError, ValueError):  # hints that only a type checker can evaluate
        found = parameters(make, with_hints=False)
    return {name: parameter for name, parameter in found.items() if name not in excluded}


def takes_more(make: Callable[..., Any]) -> bool:
    """Returns whether an environment takes keywords that no signature names: all its constructors take `**keywords`."""
    calls = [make]
    if inspect.isclass(make):
        calls = [vars(owner)["__init__"] for owner in make.__mro__[:-1] if "__init__" in vars(owner)]
    kinds = [{parameter.kind for parameter in inspect.signature(call).parameters.values()} for call in calls]
    return bool(kinds) and all(inspect.Parameter.VAR_KEYWORD in call_kinds for call_kinds in kinds)


def fitted(env: str, known: Mapping[str, Parameter], kwargs: Mapping[str, Any], more: bool = False) -> dict[str, Any]:
    """Converts `env_kwargs` to the environment's type hints: an int for 1e6, a tuple for a list.

    Args:
        env: the task, for messages.
        known: the environment's parameters.
        kwargs: the arguments.
        more: whether unknown arguments are passed on.

    Raises:
        UserError: for an unknown argument, with the names of the known ones; and for a value of the wrong type.
    """
    values = dict(kwargs)
    for key, value in kwargs.items():
        setting = f"env_kwargs.{key}={value}"
        if key == RENDER_MODE:
            raise UserError(f"{setting}: the run itself renders its videos; the key for them is save_video")
        if key not in known and not more:
            raise UserError(f"{setting}: env={env} has no such argument; {listed(known)}")
        parameter = known.get(key)
        if parameter is not None and value != parameter.default and is_plain(parameter.hint):
            try:
                values[key] = fit(parameter.hint, value)
            except ValueError as error:
                raise UserError(f"{setting}: {error}") from None
    return values


def listed(known: Mapping[str, Parameter]) -> str:
    """Lists the arguments of an environment, for a message."""
    names = ", ".join(sorted(name for name in known if name != RENDER_MODE))
    return f"there are {names}" if names else "there are none"
