"""Constructors and functions that check their arguments as the configuration is checked, for users of the library."""

import inspect
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from pydantic.errors import PydanticUserError

from settings.signatures import (
    Parameter,
    alternatives,
    fit,
    function_parameters,
    nearest,
    parameters,
    schedule_values,
)
from settings.types import Schedule
from utils import UserError, leaves, one_line

_CONVERTED = (bool, int, float, str, list, tuple, NoneType)  # values of these types are converted, others only checked
_MOST_SHOWN = 60  # characters of a value in a message
Function = TypeVar("Function", bound=Callable[..., Any])


class Validated:
    """A class whose constructor, and those of its subclasses, check each argument against its type hint.

    Each `__init__` checks the parameters that it names, so `**keywords` are checked by the constructor they are passed
    on to. Subclasses need no declaration. Arguments without a hint are not checked. Numbers, strings and lists are
    converted to the hint's type; any other value is passed on as it is.

    Raises:
        UserError: for a value that does not fit, and for an unknown keyword.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _checked_init(cls.__init__)  # type: ignore[method-assign]


def checked(function: Function) -> Function:
    """Decorates a function to check its arguments as the constructors of `Validated` do."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _checked_arguments(function, function, args, kwargs)
        return function(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


def _checked_init(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)  # keeps signature, hints and docstring
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        args, kwargs = _checked_arguments(init, type(self), args, kwargs)
        init(self, *args, **kwargs)

    return wrapper


def _checked_arguments(
    function: Callable[..., Any], called: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Converts the arguments of a call to the function's hints.

    Args:
        function: the function, or the `__init__`.
        called: the function, or the class, for messages.
    """
    expected, has_keywords = _expected(function, called is not function)
    names = [name for name, parameter in expected.items() if parameter.by_position]
    positional = dict(zip(names, args, strict=False))  # Python itself refuses surplus and repeated arguments
    fitted = [_fit(called, name, expected[name], value) for name, value in positional.items()]
    for name, value in kwargs.items():
        if name in expected:
            kwargs[name] = _fit(called, name, expected[name], value)
        elif not has_keywords:
            raise UserError(_unknown_keyword(called, name, value))
    return (*fitted, *args[len(fitted) :]), kwargs


@cache
def _expected(function: Callable[..., Any], has_self: bool) -> tuple[dict[str, Parameter], bool]:
    """The parameters without `self`, and whether there are `**keywords`."""
    try:
        declared, has_keywords = function_parameters(function)
    except (ValueError, TypeError, NameError):  # annotations that cannot be evaluated, which Python itself allows
        return {}, True
    return dict(list(declared.items())[has_self:]), has_keywords


def _fit(called: Callable[..., Any], name: str, parameter: Parameter, value: Any) -> Any:
    # A subclass may annotate its device as a string and still pass a torch.device.
    if parameter.hint is Any or value is parameter.default or (name, parameter.hint) == ("device", str):
        return value
    argument = f"{called.__name__}: {name}"
    try:
        fitted = _fit_strictly(parameter.hint, value)
    except (PydanticUserError, NameError, TypeError):  # pydantic cannot check this hint
        return value
    except ValueError as error:
        raise UserError(f"{argument}={_shown(value)}: {error}") from None
    if callable(value) and Schedule in alternatives(parameter.hint):
        _check_schedule(parameter.hint, value, argument)
    return fitted if type(value) in _CONVERTED and isinstance(fitted, (*_CONVERTED, Path)) else value


def _fit_strictly(hint: Any, value: Any) -> Any:
    """As `fit`, but refuses a number in quotes, which only a command line may give."""
    fitted = fit(hint, value)
    if type(value) in (str, list, tuple):
        for (_, before), (_, after) in zip(leaves(value), leaves(fitted), strict=False):
            if isinstance(before, str) and isinstance(after, bool | int | float):
                raise ValueError("true or false goes here" if isinstance(after, bool) else "a number goes here")
    return fitted


def _check_schedule(hint: Any, schedule: Schedule, argument: str) -> None:
    """Checks some values of a schedule (see `schedule_values`)."""
    try:
        values = schedule_values(schedule, getattr(schedule, "__dict__", {}))
    except Exception as error:  # any exception of a user's schedule
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"{argument}={_shown(schedule)}: no schedule can be made of it ({reason})") from None
    for step, value in values.items():
        try:
            fit(hint, value)
        except ValueError as error:
            raise UserError(f"{argument}, at step {step}, ={_shown(value)}: {error}") from None


def _unknown_keyword(called: Callable[..., Any], name: str, value: Any) -> str:
    try:
        known = list(parameters(called))
    except (ValueError, TypeError, NameError):
        known = []
    hint = nearest(name, known, otherwise=f"help({called.__name__}) lists them")
    return f"{called.__name__}: {name}={_shown(value)}: unknown key; {hint}"


def _shown(value: Any) -> str:
    text = one_line(value.__name__ if inspect.isclass(value) or inspect.isfunction(value) else repr(value))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
