"""Types for the annotations of parameters (see settings/schema.py)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import AfterValidator, JsonValue

from utils import leaves

PositiveInt = Annotated[int, Gt(0)]
NonNegativeInt = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
Depth = Annotated[int, Ge(0), Le(1000)]  # number of hidden layers
RowSteps = Annotated[int, Gt(0), Le(1000)]  # steps in a row of the replay buffer
Seconds = Annotated[float, Gt(0), Le(1_000_000)]  # twelve days; timers overflow somewhere above
Members = Annotated[int, Gt(0), Le(1000)]  # number of networks in an ensemble, which are initialised one by one
UnitInterval = Annotated[float, Ge(0), Le(1)]
Betas = tuple[Annotated[float, Ge(0), Lt(1)], Annotated[float, Ge(0), Lt(1)]]  # Adam's
Points = Annotated[list[tuple[int, float]], MinLen(1)]  # (step, value)


def _increasing(bounds: tuple[float, float]) -> tuple[float, float]:
    if not bounds[0] < bounds[1]:
        raise ValueError("the lower bound comes first")
    return bounds


Bounds = Annotated[tuple[float, float], AfterValidator(_increasing)]


@dataclass(frozen=True)
class Interface:
    """Requirements on the class that a node names, as in `Annotated[Factory, Interface("a norm", ("width",))]`.

    Attributes:
        what: the kind of class, in words, for error messages.
        given: the arguments that the code passes.
        has: the attributes that the code uses on the instance.
    """

    what: str
    given: tuple[str, ...] = ()
    has: tuple[str, ...] = ()


def _without_nodes(values: dict[str, Any]) -> dict[str, Any]:
    if any("_target_" in name.split(".") for name, _ in leaves(values)):
        raise ValueError("plain values go here, and no node")
    return values


Plain = Annotated[dict[str, JsonValue], AfterValidator(_without_nodes)]  # arguments of an environment, without nodes
Factory = Callable[..., Any]  # a YAML node with `_partial_: true`, which the code completes
Schedule = Callable[[int], float]  # environment step -> value (see agent/schedule.py)
EnvWrapper = Annotated[Factory, Interface("a wrapper of an environment", ("env",), ("reset", "step"))]
Execution = Literal["auto", "eager", "recorded", "compiled", "captured", "compiled_captured"]  # see agent/execution/
Storage = Literal["auto", "host", "device"]  # see replay/device.py
