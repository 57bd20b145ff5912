"""Constructors and functions that check what they are given: the types that guard the configuration, for whoever uses a
library."""

import inspect
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from pydantic.errors import PydanticUserError

from settings.signatures import Parameter, along, alternatives, fit, named, nearest, parameters
from settings.types import Schedule
from utils import UserError, leaves, one_line

_PLAIN = (bool, int, float, str, list, tuple, NoneType)
_SHOWN = 60  # characters of a value
Function = TypeVar("Function", bound=Callable[..., Any])


class Validated:
    """A class whose constructor, and those of its subclasses, check each argument against its hint.

    Each `__init__` of a class looks at what it names itself, so `**keywords` are looked at where they arrive. Nothing
    is declared and nothing has to be called; an argument without a hint may be anything. Numbers, texts and lists
    arrive as the hint's type, anything else as it was given.

    Raises:
        UserError: for a value that does not fit, and for a keyword that nothing takes.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _checking(cls.__init__)  # type: ignore[method-assign]


def checked(function: Function) -> Function:
    """A function that checks its arguments as the constructors of `Validated` do."""

    @wraps(function)
    def checking(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _fitted(function, function, args, kwargs)
        return function(*args, **kwargs)

    return checking  # type: ignore[return-value]


def _checking(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)  # so that signature, hints and documentation stay
    def checking(self: Any, *args: Any, **kwargs: Any) -> None:
        args, kwargs = _fitted(init, type(self), args, kwargs)
        init(self, *args, **kwargs)

    return checking


def _fitted(
    function: Callable[..., Any], kind: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as the hints of a function, or an `__init__`, have them.

    Args:
        kind: what is called, for messages: the function, or the class.
    """
    expected, goes_on = _expected(function, kind is not function)
    by_position = [name for name, parameter in expected.items() if parameter.by_position]
    given = dict(zip(by_position, args, strict=False))  # more of them, or one given twice, is Python's to refuse
    fitted = [_fit(kind, name, expected[name], value) for name, value in given.items()]
    for name, value in kwargs.items():
        if name in expected:
            kwargs[name] = _fit(kind, name, expected[name], value)
        elif not goes_on:
            raise UserError(_unknown(kind, name, value))
    return (*fitted, *args[len(fitted) :]), kwargs


@cache
def _expected(function: Callable[..., Any], has_self: bool) -> tuple[dict[str, Parameter], bool]:
    """What a function names, without `self`, and whether it hands on others."""
    try:
        found, goes_on = named(function)
    except (ValueError, TypeError, NameError):  # annotations that lead nowhere from here: Python does not mind
        return {}, True
    return dict(list(found.items())[has_self:]), goes_on


def _fit(kind: Callable[..., Any], name: str, parameter: Parameter, value: Any) -> Any:
    # Forks say that a device is a text, and their constructors do not mind.
    if parameter.hint is Any or value is parameter.default or (name, parameter.hint) == ("device", str):
        return value
    where = f"{kind.__name__}: {name}"
    try:
        fitted = _fit_number(parameter.hint, value)
    except (PydanticUserError, NameError, TypeError):  # a hint that nothing can be held against
        return value
    except ValueError as error:
        raise UserError(f"{where}={_shown(value)}: {error}") from None
    if callable(value) and Schedule in alternatives(parameter.hint):
        _fit_schedule(parameter.hint, value, where)
    return fitted if type(value) in _PLAIN and isinstance(fitted, (*_PLAIN, Path)) else value


def _fit_number(hint: Any, value: Any) -> Any:
    """As `fit`; but a number is no text, as it may be on a command line."""
    fitted = fit(hint, value)
    if type(value) in (str, list, tuple):
        for (_, before), (_, after) in zip(leaves(value), leaves(fitted), strict=False):
            if isinstance(before, str) and isinstance(after, bool | int | float):
                raise ValueError("true or false goes here" if isinstance(after, bool) else "a number goes here")
    return fitted


def _fit_schedule(hint: Any, schedule: Schedule, where: str) -> None:
    """Has what a schedule gives fit where it goes, at the steps at which the configuration's check looks at it."""
    try:
        values = along(schedule, getattr(schedule, "__dict__", {}))
    except Exception as error:  # whatever a schedule of the user's own raises
        said = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"{where}={_shown(schedule)}: no schedule can be made of it ({said})") from None
    for step, value in values.items():
        try:
            fit(hint, value)
        except ValueError as error:
            raise UserError(f"{where}, at step {step}, ={_shown(value)}: {error}") from None


def _unknown(kind: Callable[..., Any], name: str, value: Any) -> str:
    try:
        known = list(parameters(kind))
    except (ValueError, TypeError, NameError):
        known = []
    hint = nearest(name, known, otherwise=f"help({kind.__name__}) lists them")
    return f"{kind.__name__}: {name}={_shown(value)}: unknown key; {hint}"


def _shown(value: Any) -> str:
    text = one_line(value.__name__ if inspect.isclass(value) or inspect.isfunction(value) else repr(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
