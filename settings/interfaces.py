"""Whether a class can be the part that a configuration names it for."""

import inspect
from collections.abc import Container
from functools import partial
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from settings.types import Part
from utils import UserError


def part_in(hint: Any) -> Part | None:
    """What a parameter asks of a class, if its type says so."""
    if get_origin(hint) in (Union, UnionType):
        return next((found for one in get_args(hint) if (found := part_in(one))), None)
    if get_origin(hint) is Annotated:
        return next((found for found in hint.__metadata__ if isinstance(found, Part)), None)
    return None


def require_part(part: Part, target: Any, names: Container[str], said: str) -> None:
    """Raises UserError if a class cannot be called as the code calls this part, or lacks what it calls on it.

    Args:
        target: the class, or a function, of whose result nothing is known.
        names: the parameters that it has.
        said: the key and the value, for the message.
    """
    while isinstance(target, partial):
        target = target.func
    is_class = inspect.isclass(target)
    takes = inspect.signature(target).parameters.values()
    if is_class or not any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes):
        _refuse_without([name for name in part.given if name not in names], part, "does not take", said)
    if is_class:
        has = {name for owner in target.__mro__ for name in vars(owner)}
        _refuse_without([name for name in part.has if name not in has], part, "has no", said)


def _refuse_without(missing: list[str], part: Part, what_it: str, said: str) -> None:
    if missing:
        raise UserError(f"{said}: {part.what} goes here, and this {what_it} {', '.join(missing)}")
