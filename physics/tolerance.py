"""dm_control's soft indicator function (arXiv 1801.00690, section 2), from arrays to arrays."""

import math
from collections.abc import Callable
from typing import Any

from physics.task import Array, namespace, squared


def tolerance(
    x: Array,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: float = 0.0,
    sigmoid: str = "gaussian",
    value_at_margin: float = 0.1,
) -> Array:
    """Returns 1 where x lies within the bounds, falling to `value_at_margin` at a distance of `margin`.

    Args:
        x: (N,) where dm_control has a number, (N, k) where it has an array; it rounds their squares differently.
        bounds: lower and upper bound, inclusive; they may be infinite.
        margin: distance from the bounds; with 0, the value is 0 everywhere outside the bounds.
        sigmoid: the shape of the fall, a key of SIGMOIDS.
        value_at_margin: between 0 and 1.

    Returns:
        In the shape of x; float64 for arrays.
    """
    xp, (lower, upper) = namespace(x), bounds
    if margin == 0:
        return xp.where((lower <= x) & (x <= upper), 1.0, 0.0)
    outside = lower - x if upper == math.inf else xp.maximum(lower - x, x - upper)
    distance = outside * (outside > 0)  # every sigmoid is 1 at 0
    return SIGMOIDS[sigmoid](distance / margin, value_at_margin)


def _squared(x: Array) -> Array:
    return squared(x) if x.ndim == 1 else x * x


def _gaussian(x: Array, value: float) -> Array:
    return namespace(x).exp(-0.5 * _squared(x * math.sqrt(-2 * math.log(value))))


def _hyperbolic(x: Array, value: float) -> Array:
    return 1 / namespace(x).cosh(x * math.acosh(1 / value))


def _long_tail(x: Array, value: float) -> Array:
    return 1 / (_squared(x * math.sqrt(1 / value - 1)) + 1)


def _reciprocal(x: Array, value: float) -> Array:
    return 1 / (abs(x) * (1 / value - 1) + 1)


def _cosine(x: Array, value: float) -> Array:
    xp, scaled = namespace(x), x * (math.acos(2 * value - 1) / math.pi)
    return xp.where(abs(scaled) < 1, (1 + xp.cos(math.pi * scaled)) / 2, 0.0)


def _linear(x: Array, value: float) -> Array:
    scaled = x * (1 - value)
    return namespace(x).where(abs(scaled) < 1, 1 - scaled, 0.0)


def _quadratic(x: Array, value: float) -> Array:
    scaled = x * math.sqrt(1 - value)
    return namespace(x).where(abs(scaled) < 1, 1 - _squared(scaled), 0.0)


def _tanh_squared(x: Array, value: float) -> Array:
    return 1 - _squared(namespace(x).tanh(x * math.atanh(math.sqrt(1 - value))))


SIGMOIDS: dict[str, Callable[[Array, float], Array]] = {
    "gaussian": _gaussian,
    "hyperbolic": _hyperbolic,
    "long_tail": _long_tail,
    "reciprocal": _reciprocal,
    "cosine": _cosine,
    "linear": _linear,
    "quadratic": _quadratic,
    "tanh_squared": _tanh_squared,
}


def small_control(state: Any) -> Array:
    """Returns how small the controls are, the mean over actuators, (N,): 1 for zero controls, 0 at the bounds."""
    return tolerance(state.ctrl, margin=1, value_at_margin=0, sigmoid="quadratic").mean(1)
