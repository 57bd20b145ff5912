"""Validates constructor and function arguments in Python: as the configuration is checked, for users of the library."""

import inspect
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from pydantic.errors import PydanticUserError

from settings.signatures import Parameter, alternatives, fit, function_parameters, nearest, parameters, require_schedule
from settings.types import Schedule
from utils import UserError, leaves, one_line

_CONVERTED = (bool, int, float, str, list, tuple, NoneType)  # values of these types are converted, others only checked
_MOST_SHOWN = 60  # characters of a value in a message
Function = TypeVar("Function", bound=Callable[..., Any])


class Validated:
    """A base class that makes the constructors of its subclasses check each argument against its type hint.

    Each `__init__` checks the parameters that it names, so `**keywords` are checked by the constructor they are passed
    on to. Subclasses need no declaration. Arguments without a hint are not checked. Numbers, strings and lists are
    converted to the hint's type; any other value is passed on as it is.

    Raises:
        UserError: for a value that does not fit, and for an unknown keyword.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]


def checked(function: Function) -> Function:
    """Decorates a function, or an `__init__`, to check its arguments as the constructors of `Validated` do."""
    is_init = function.__name__ == "__init__"

    @wraps(function)  # keeps signature, hints and docstring
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        called = type(args[0]) if is_init else function  # for messages
        expected, has_keywords = _expected(function)
        names = [name for name, parameter in expected.items() if parameter.by_position]
        positional = zip(names, args, strict=False)  # Python itself refuses surplus and repeated arguments
        fitted = [_fit(called, name, expected[name], value) for name, value in positional]
        for name, value in kwargs.items():
            if name in expected:
                kwargs[name] = _fit(called, name, expected[name], value)
            elif not has_keywords:
                known = parameters(called, with_hints=False)
                hint = nearest(name, known, otherwise=f"help({called.__name__}) lists them")
                raise UserError(f"{called.__name__}: {name}={_shown(value)}: unknown key; {hint}")
        return function(*fitted, *args[len(fitted) :], **kwargs)

    return wrapper  # type: ignore[return-value]


@cache
def _expected(function: Callable[..., Any]) -> tuple[dict[str, Parameter], bool]:
    """Returns the parameters, and whether there are `**keywords`."""
    try:
        return function_parameters(function)
    except (ValueError, TypeError, NameError):  # annotations that cannot be evaluated, which Python itself allows
        return {}, True


def _fit(called: Callable[..., Any], name: str, parameter: Parameter, value: Any) -> Any:
    # A subclass may annotate its device as a string and still pass a torch.device.
    if parameter.hint is Any or value is parameter.default or (name, parameter.hint) == ("device", str):
        return value
    argument = f"{called.__name__}: {name}"
    try:
        fitted = fit(parameter.hint, value)
        if type(value) in (str, list, tuple):  # only a command line may give a number in quotes
            for (_, before), (_, after) in zip(leaves(value), leaves(fitted), strict=False):
                if isinstance(before, str) and isinstance(after, bool | int | float):
                    raise ValueError("true or false goes here" if isinstance(after, bool) else "a number goes here")
    except (PydanticUserError, NameError, TypeError):  # pydantic cannot check this hint
        return value
    except ValueError as error:
        raise UserError(f"{argument}={_shown(value)}: {error}") from None
    if callable(value) and Schedule in alternatives(parameter.hint):
        shown = f"{argument}={_shown(value)}"
        require_schedule(lambda: value, getattr(value, "__dict__", {}), parameter.hint, argument, shown)
    return fitted if type(value) in _CONVERTED and isinstance(fitted, (*_CONVERTED, Path)) else value


def _shown(value: Any) -> str:
    text = one_line(value.__name__ if inspect.isclass(value) or inspect.isfunction(value) else repr(value))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
