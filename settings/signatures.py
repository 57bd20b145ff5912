"""Reads signatures and checks values against type hints."""

import difflib
import inspect
from collections.abc import Callable, Container, Iterable, Iterator
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from settings.types import Interface
from utils import UserError, leaves, one_line

_LATE_STEP = 10**12
# A number is a valid label: experiment=1.
_CONFIG = ConfigDict(coerce_numbers_to_str=True, allow_inf_nan=False, arbitrary_types_allowed=True)


class Parameter(NamedTuple):
    """One parameter of a signature; `default` is inspect.Parameter.empty if it has none."""

    hint: Any
    default: Any
    by_position: bool


def parameters(target: Any, with_hints: bool = True) -> dict[str, Parameter]:
    """Returns the parameters that a class or a function can be called with.

    If a class's `__init__` takes `**keywords`, the parameters of the next class in the MRO are added; where both have
    a parameter, the subclass's takes precedence.

    Args:
        with_hints: False leaves every hint `Any`, for annotations that cannot be evaluated.
    """
    if isinstance(target, partial):
        unbound = list(parameters(target.func, with_hints).items())[len(target.args) :]
        return {
            name: parameter._replace(default=target.keywords.get(name, parameter.default))
            for name, parameter in unbound
        }
    if not inspect.isclass(target):
        return function_parameters(target, with_hints)[0]
    merged: dict[str, Parameter] = {}
    for owner in target.__mro__:
        if "__init__" in vars(owner):
            declared, has_keywords = function_parameters(owner.__init__, with_hints)  # type: ignore[misc]
            merged = declared | merged
            if not has_keywords:
                break
    merged.pop("self", None)
    return merged


def function_parameters(function: Any, with_hints: bool = True) -> tuple[dict[str, Parameter], bool]:
    """Returns the parameters that one function names, and whether it also takes `**keywords`."""
    hints = get_type_hints(function, include_extras=True) if with_hints else {}
    listed = inspect.signature(function).parameters
    declared = {
        name: Parameter(hints.get(name, Any), parameter.default, parameter.kind is not parameter.KEYWORD_ONLY)
        for name, parameter in listed.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    return declared, any(parameter.kind is parameter.VAR_KEYWORD for parameter in listed.values())


def fit(hint: Any, value: Any) -> Any:
    """Converts a value to the type of its hint, such as 1e6 to an int or a list to a tuple.

    Raises:
        ValueError: if the value does not fit; the message says what would.
    """
    nested_types = list(_nested_types(hint))
    if isinstance(value, bool) and (int in nested_types or float in nested_types) and bool not in nested_types:
        raise ValueError("a number goes here")
    try:
        adapter = _adapter(hint)
    except TypeError:  # the hint is not hashable
        adapter = _adapter.__wrapped__(hint)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        lengths = [len(get_args(kind)) for kind in nested_types if get_origin(kind) is tuple]
        if first["type"] in ("missing", "too_long") and lengths:
            raise ValueError(f"a list of {lengths[0]} values goes here") from None
        if expected := _EXPECTED.get(first["type"].partition("_")[0]):
            choices = [word for kind in alternatives(hint) if get_origin(kind) is Literal for word in get_args(kind)]
            raise ValueError(f"{' or '.join([expected, *map(str, choices)])} goes here") from None
        message = first["msg"]
        raise ValueError(message.replace("Input should", "it should").replace("Value error, ", "")) from None


_EXPECTED = {  # by the start of pydantic's type
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "string": "a word",
    "list": "a list, [a, b],",
    "tuple": "a list, [a, b],",
    "dict": "a group of keys, {key: value},",
}


@cache  # building an adapter takes longer than all the values it validates
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint, config=_CONFIG)


def _nested_types(hint: Any) -> Iterator[Any]:
    """Yields a hint and every type in its brackets."""
    yield hint
    for argument in get_args(hint):
        yield from _nested_types(argument)


def alternatives(hint: Any) -> Iterator[Any]:
    """Yields the members of a union, without the ranges in their `Annotated`."""
    if get_origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from alternatives(member)
    elif get_origin(hint) is Annotated:
        yield from alternatives(get_args(hint)[0])
    else:
        yield hint


def is_plain(hint: Any) -> bool:
    """Returns whether a hint admits only YAML's own types: numbers, strings, lists and mappings of them."""
    kind = get_origin(hint)
    if kind is Annotated:
        return is_plain(get_args(hint)[0])
    if kind is None:
        return any(hint is plain for plain in (bool, int, float, str, list, tuple, dict, None, NoneType, ...))
    return kind is Literal or (kind in (list, tuple, dict, Union, UnionType) and all(map(is_plain, get_args(hint))))


def require_schedule(make: Callable[[], Any], arguments: Any, hint: Any, key: str, setting: str) -> None:
    """Builds a schedule, and checks its values at step 0, at every step that its arguments name, and at a late one.

    Args:
        key, setting: for messages, the key and `key=value`.

    Raises:
        UserError: if it raises an exception, or a value does not fit the hint.
    """
    steps = [value for _, value in leaves(arguments) if isinstance(value, int) and 0 < value < _LATE_STEP]
    try:
        schedule = make()
        values = {step: schedule(step) for step in [0, *sorted(steps), _LATE_STEP]}
    except Exception as error:  # any exception of a user's class
        reason = f"{type(error).__name__}: {one_line(error.__cause__ or error)}"
        raise UserError(f"{setting}: no schedule can be made of it ({reason})") from None
    for step, value in values.items():
        try:
            fit(hint, value)
        except ValueError as error:
            raise UserError(f"{key}, at step {step}, ={value}: {error}") from None


def interface_of(hint: Any) -> Interface | None:
    """Returns the `Interface` in a type hint, which has the requirements on a node's class; None if there is none."""
    if get_origin(hint) in (Union, UnionType):
        return next(filter(None, map(interface_of, get_args(hint))), None)
    if get_origin(hint) is Annotated:
        return next((extra for extra in hint.__metadata__ if isinstance(extra, Interface)), None)
    return None


def require_interface(interface: Interface, target: Any, names: Container[str], setting: str) -> None:
    """Checks that a class takes the arguments that the code passes, and has the methods that the code calls.

    Args:
        target: the class; or a function, whose result is unknown, so its methods are not checked.
        names: its parameters.
        setting: `key=value`, for the message.

    Raises:
        UserError: if an argument or a method is missing.
    """
    while isinstance(target, partial):
        target = target.func
    is_class = inspect.isclass(target)
    missing = {"does not take": [name for name in interface.given if name not in names], "has no": []}
    if is_class:
        attributes = {name for owner in target.__mro__ for name in vars(owner)}
        missing["has no"] = [name for name in interface.has if name not in attributes]
    elif function_parameters(target, with_hints=False)[1]:  # a function with **keywords takes any argument
        return
    for what, missing_names in missing.items():
        if missing_names:
            raise UserError(f"{setting}: {interface.what} goes here, and this {what} {', '.join(missing_names)}")


def _is_close(one: str, other: str) -> bool:
    return difflib.SequenceMatcher(None, one, other).ratio() > 0.5


def nearest(key: str, known: Iterable[str], path: str = "", otherwise: str = "") -> str:
    """Suggests similar keys, compared as a whole, else by their last part; or says where all keys are listed.

    Args:
        path: put in front of each suggestion.
        otherwise: the text if no key is similar.
    """
    known = [name for name in known if not name.rsplit(".", 1)[-1].startswith("_") and not key.startswith(f"{name}.")]
    matches = difflib.get_close_matches(key, known, n=2, cutoff=0.6)
    matches = [name for name in matches if _is_close(key.rsplit(".", 1)[-1], name.rsplit(".", 1)[-1])]
    if not matches:
        by_last_part = {name.rsplit(".", 1)[-1]: name for name in reversed(known)}  # the first of equal ones wins
        close = difflib.get_close_matches(key.rsplit(".", 1)[-1], by_last_part, n=2, cutoff=0.6)
        matches = [by_last_part[last_part] for last_part in close]
    if matches:
        return f"did you mean {' or '.join(path + match for match in matches)}?"
    return otherwise or "`python train.py --cfg job` prints them all"
