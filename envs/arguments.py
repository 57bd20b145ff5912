"""The arguments of an environment: which there are, and whether those that are given are among them."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from settings.signatures import Parameter, fit, is_plain, parameters
from utils import UserError

RENDERING = "render_mode"  # which the run sets, as it films


def known(make: Callable[..., Any], but: tuple[str, ...] = ()) -> dict[str, Parameter]:
    """What a class or a function can be called with, as far as its signature says.

    Args:
        but: parameters that are not for the user.
    """
    try:
        found = parameters(make)
    except (NameError, TypeError, ValueError):  # a hint that only a type checker can follow
        found = {}
        for call in _calls(make):
            listed = inspect.signature(call).parameters.values()
            found = {one.name: Parameter(Any, one.default, True) for one in listed if not _collects(one)} | found
            if not _hands_on(call):
                break
    return {name: parameter for name, parameter in found.items() if name not in (*but, "self")}


def takes_more(make: Callable[..., Any]) -> bool:
    """Whether it takes keywords that neither its own signature nor that of a base class names."""
    calls = _calls(make)
    return bool(calls) and all(map(_hands_on, calls))


def _calls(make: Callable[..., Any]) -> list[Callable[..., Any]]:
    """A function, or of a class each `__init__` that its keywords may go on to."""
    if not inspect.isclass(make):
        return [make]
    return [vars(owner)["__init__"] for owner in make.__mro__[:-1] if "__init__" in vars(owner)]


def _hands_on(function: Callable[..., Any]) -> bool:
    return any(one.kind is one.VAR_KEYWORD for one in inspect.signature(function).parameters.values())


def _collects(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)


def fitted(env: str, there: Mapping[str, Parameter], given: Mapping[str, Any], more: bool = False) -> dict[str, Any]:
    """The given arguments as the environment's hints have them: an int for 1e6, a tuple for a list.

    Args:
        env: its name.
        there: the arguments that it has.
        given: `env_kwargs`.
        more: whether it may have others, too.

    Raises:
        UserError: for an argument that there is not, naming those there are; and for one that does not fit.
    """
    return {key: _fitted(env, there, key, value, more) for key, value in given.items()}


def _fitted(env: str, there: Mapping[str, Parameter], key: str, value: Any, more: bool) -> Any:
    said = f"env_kwargs.{key}={value}"
    if key == RENDERING:
        raise UserError(f"{said}: the run itself renders its videos; the key for them is save_video")
    if key not in there and not more:
        raise UserError(f"{said}: env={env} has no such argument; {names(there)}")
    parameter = there.get(key)
    if parameter is None or value == parameter.default or not is_plain(parameter.hint):
        return value
    try:
        return fit(parameter.hint, value)
    except ValueError as error:
        raise UserError(f"{said}: {error}") from None


def names(there: Mapping[str, Parameter]) -> str:
    """In words, which arguments there are."""
    listed = ", ".join(sorted(name for name in there if name != RENDERING))
    return f"there are {listed}" if listed else "there are none"
