"""Constructors that check what they are given: the types that guard the configuration, for whoever uses a library."""

import inspect
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from types import NoneType
from typing import Any

from pydantic.errors import PydanticUserError

from settings.hints import Parameter, along, alternatives, fit, named, nearest, parameters
from settings.types import Schedule
from utils import UserError, leaves, one_line

_PLAIN = (bool, int, float, str, list, tuple, NoneType)
_SHOWN = 60  # characters of a value


class Checked:
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


def _checking(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)  # so that signature, hints and documentation stay
    def checking(self: Any, *args: Any, **kwargs: Any) -> None:
        expected, goes_on = _expected(init)
        by_position = [name for name, parameter in expected.items() if parameter.by_position]
        given = dict(zip(by_position, args, strict=False))  # more of them, or one given twice, is Python's to refuse
        fitted = {name: _fit(self, name, expected[name], value) for name, value in given.items()}
        for name, value in kwargs.items():
            if name in expected:
                kwargs[name] = _fit(self, name, expected[name], value)
            elif not goes_on:
                raise UserError(_unknown(self, name, value))
        init(self, *fitted.values(), *args[len(fitted) :], **kwargs)

    return checking


@cache
def _expected(init: Callable[..., None]) -> tuple[dict[str, Parameter], bool]:
    """What an `__init__` names, without `self`, and whether it hands on others."""
    try:
        found, goes_on = named(init)
    except (ValueError, TypeError, NameError):  # annotations that lead nowhere from here: Python does not mind
        return {}, True
    return dict(list(found.items())[1:]), goes_on


def _fit(self: Any, name: str, parameter: Parameter, value: Any) -> Any:
    # Forks say that a device is a text, and their constructors do not mind.
    if parameter.hint is Any or value is parameter.default or (name, parameter.hint) == ("device", str):
        return value
    where = f"{type(self).__name__}: {name}"
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


def _unknown(self: Any, name: str, value: Any) -> str:
    kind = type(self).__name__
    try:
        known = list(parameters(type(self)))
    except (ValueError, TypeError, NameError):
        known = []
    return f"{kind}: {name}={_shown(value)}: unknown key; {nearest(name, known, otherwise=f'help({kind}) lists them')}"


def _shown(value: Any) -> str:
    text = one_line(value.__name__ if inspect.isclass(value) or inspect.isfunction(value) else repr(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
