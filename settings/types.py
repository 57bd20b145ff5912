"""Types for the annotations of parameters (see settings/schema.py)."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

PositiveInt = Annotated[int, Gt(0)]
NonNegativeInt = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
UnitInterval = Annotated[float, Ge(0), Le(1)]
Betas = tuple[Annotated[float, Ge(0), Lt(1)], Annotated[float, Ge(0), Lt(1)]]  # Adam's

Bounds = tuple[float, float]  # the lower one first
Factory = Callable[..., Any]  # a YAML node with `_partial_: true`, which the code completes
Schedule = Callable[[int], float]  # environment step -> value (see agent/schedule.py)
Execution = Literal["auto", "eager", "recorded", "compiled", "captured", "compiled_captured"]  # see agent/execution/
Storage = Literal["auto", "host", "device"]  # see replay/device.py
