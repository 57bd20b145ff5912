"""What a signature says of its parameters, and whether a value is what a hint says."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from utils import leaves

_LATE_STEP = 10**12
# A number is a fine label: experiment=1.
_CONFIG = ConfigDict(coerce_numbers_to_str=True, allow_inf_nan=False, arbitrary_types_allowed=True)


class Parameter(NamedTuple):
    """What one argument may be; `default` is inspect.Parameter.empty where there is none."""

    hint: Any
    default: Any
    by_position: bool

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def parameters(target: Any) -> dict[str, Parameter]:
    """What a class or a function can be called with.

    `**keywords` of a class's `__init__` stand for what the next class's takes; where both have a parameter, the
    subclass's counts.
    """
    if isinstance(target, partial):
        unbound = list(parameters(target.func).items())[len(target.args) :]
        return {key: one._replace(default=target.keywords.get(key, one.default)) for key, one in unbound}
    if not inspect.isclass(target):
        return named(target)[0]
    found: dict[str, Parameter] = {}
    for owner in target.__mro__:
        if "__init__" in vars(owner):
            own, goes_on = named(owner.__init__)  # type: ignore[misc]
            found = own | found
            if not goes_on:
                break
    found.pop("self", None)
    return found


def named(function: Any) -> tuple[dict[str, Parameter], bool]:
    """A function's parameters by name, and whether it hands on others that it does not name."""
    hints = get_type_hints(function, include_extras=True)
    found: dict[str, Parameter] = {}
    goes_on = False
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            goes_on = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            by_position = parameter.kind is not parameter.KEYWORD_ONLY
            found[name] = Parameter(hints.get(name, Any), parameter.default, by_position)
    return found, goes_on


def fit(hint: Any, value: Any) -> Any:
    """A value as its hint has it: an int for 1e6, a tuple for a list.

    Raises:
        ValueError: if it does not fit; the message says what would.
    """
    accepts = list(_parts(hint))
    if isinstance(value, bool) and (int in accepts or float in accepts) and bool not in accepts:
        raise ValueError("a number goes here")
    try:
        return _adapter(hint).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = first["msg"].replace("Input should", "it should").replace("Value error, ", "")
        raise ValueError(message) from None


def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return _cached_adapter(hint)
    except TypeError:  # a hint that cannot be hashed
        return TypeAdapter(hint, config=_CONFIG)


@cache  # making one takes longer than all that it is asked for
def _cached_adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint, config=_CONFIG)


def along(schedule: Callable[[int], Any], arguments: Any) -> dict[int, Any]:
    """What a schedule gives, by step: at the first, at those that its arguments name, and at a late one."""
    numbers = [value for _, value in leaves(arguments) if isinstance(value, int) and 0 < value < _LATE_STEP]
    return {step: schedule(step) for step in [0, *sorted(numbers), _LATE_STEP]}


def _parts(hint: Any) -> Iterator[Any]:
    """The plain types in a union of annotated ones."""
    yield hint
    for part in get_args(hint):
        yield from _parts(part)


def is_plain(hint: Any) -> bool:
    """Whether only what YAML has fits a hint: numbers, texts, lists and groups of them."""
    kind = get_origin(hint)
    if kind is Annotated:
        return is_plain(get_args(hint)[0])
    if kind is None:
        return any(hint is plain for plain in (bool, int, float, str, list, tuple, dict, None, NoneType, ...))
    return kind is Literal or (kind in (list, tuple, dict, Union, UnionType) and all(map(is_plain, get_args(hint))))


def alternatives(hint: Any) -> Iterator[Any]:
    """The types of which a union is made, without their ranges."""
    if get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from alternatives(part)
    elif get_origin(hint) is Annotated:
        yield from alternatives(get_args(hint)[0])
    else:
        yield hint


def nearest(key: str, known: Iterable[str], path: str = "", otherwise: str = "") -> str:
    """`did you mean ...?`, by the whole key first and by its last part otherwise; or a pointer to the list."""
    known = [name for name in known if not name.rsplit(".", 1)[-1].startswith("_")]
    matches = difflib.get_close_matches(key, known, n=2, cutoff=0.6)
    if not matches:
        last = key.rsplit(".", 1)[-1]
        by_last: dict[str, str] = {}
        for name in known:
            by_last.setdefault(name.rsplit(".", 1)[-1], name)
        matches = [by_last[match] for match in difflib.get_close_matches(last, by_last, n=2, cutoff=0.6)]
    if matches:
        return f"did you mean {' or '.join(path + match for match in matches)}?"
    return otherwise or "`python train.py --cfg job` prints them all"
