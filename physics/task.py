"""What a task of the suite is here: observations and rewards as functions of the state of all worlds."""

import math
import sys
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

Array = Any  # numpy's, or torch's: only operations that both have are used on states
HINGE = 3  # mjJNT_HINGE of MuJoCo's mjtJoint
XX, XY, XZ, YX, YY, YZ, ZX, ZY, ZZ = range(9)  # columns of xmat; XZ is the world's x of a body's own z axis


class Task(ABC):
    """Computes the observations and rewards of one task.

    Attributes:
        model_fields: arrays of the model that the start of an episode writes; every world then has its own.
        on_device: whether mujoco-warp can step the task, too.
    """

    model_fields: ClassVar[tuple[str, ...]] = ()
    on_device: ClassVar[bool] = True

    @abstractmethod
    def __init__(self, model: Any, task: Any):
        """Finds indices by name in the `mujoco.MjModel`, never during a step; dm_control's task has the parameters."""

    @abstractmethod
    def observation(self, state: Any) -> tuple[Array, ...]:
        """Returns the parts of the observation, each (N, k), in dm_control's order.

        Args:
            state: has MuJoCo's arrays of N worlds, by the names of MjData, each (N, *shape) (see physics.worlds.State).
        """

    @abstractmethod
    def reward(self, state: Any) -> Array:
        """Returns the rewards, (N,)."""


def sensors(model: Any, *names: str) -> list[int]:
    """Returns the places of these sensors' numbers in `sensordata`, in this order."""
    spans = [(int(sensor.adr[0]), int(sensor.dim[0])) for sensor in map(model.sensor, names)]
    return [place for start, size in spans for place in range(start, start + size)]


def joints(model: Any, *names: str) -> tuple[list[int], list[int]]:
    """Returns the places of these hinges and slides in `qpos` and in `qvel`; without names, of all hinges."""
    found = [model.joint(name).id for name in names] or model.jnt_type == HINGE
    return model.jnt_qposadr[found].tolist(), model.jnt_dofadr[found].tolist()


def namespace(x: Array) -> Any:
    """Returns the module, numpy or torch, whose functions take this array."""
    return np if isinstance(x, np.ndarray) else sys.modules["torch"]


def norm(x: Array) -> Array:
    """Returns the lengths (N,) of vectors (N, k), rounded as by `np.linalg.norm` for one vector."""
    xp = namespace(x)
    return xp.sqrt(xp.linalg.vecdot(x, x))


def in_frame(vectors: Array, xmat: Array) -> Array:
    """Rotates world vectors (N, 3) or (N, k, 3) into the frames of bodies (N, 9), rounded as in dm_control.

    Returns:
        (N, 3) or (N, 3 k).
    """
    return (vectors.reshape(len(xmat), -1, 1, 3) @ xmat.reshape(-1, 1, 3, 3)).reshape(len(xmat), -1)


def tolerance(
    x: Array,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: float = 0.0,
    sigmoid: str = "gaussian",
    value_at_margin: float = 0.1,
) -> Array:
    """Returns 1 where x lies within the bounds, falling to `value_at_margin` at a distance of `margin`.

    This is dm_control's soft indicator function (arXiv 1801.00690, section 2).

    Args:
        x: (N,) where dm_control has a number, (N, k) where it has an array; it rounds their squares differently.
        bounds: lower and upper bound, inclusive; they may be infinite.
        margin: distance from the bounds; with 0, the value is 0 everywhere outside the bounds.
        sigmoid: the shape of the fall: gaussian, long_tail, reciprocal, linear or quadratic.
        value_at_margin: between 0 and 1.

    Returns:
        In the shape of x; float64 for arrays.
    """
    xp, (lower, upper) = namespace(x), bounds
    if margin == 0:
        return xp.where((lower <= x) & (x <= upper), 1.0, 0.0)
    outside = lower - x if upper == math.inf else xp.maximum(lower - x, x - upper)
    x = outside * (outside > 0) / margin  # every sigmoid is 1 at 0
    # dm_control also has "hyperbolic", "cosine" and "tanh_squared", which no task uses.
    if sigmoid == "gaussian":
        return xp.exp(-0.5 * _squared(x * math.sqrt(-2 * math.log(value_at_margin))))
    if sigmoid == "long_tail":
        return 1 / (_squared(x * math.sqrt(1 / value_at_margin - 1)) + 1)
    if sigmoid == "reciprocal":
        return 1 / (x * (1 / value_at_margin - 1) + 1)
    if sigmoid == "linear":
        scaled = x * (1 - value_at_margin)
        return xp.where(scaled < 1, 1 - scaled, 0.0)
    scaled = x * math.sqrt(1 - value_at_margin)  # quadratic
    return xp.where(scaled < 1, 1 - _squared(scaled), 0.0)


def _squared(x: Array) -> Array:
    """Squares (N,) as Python squares one number: by C's pow, whose last bit may differ from x * x."""
    if x.ndim == 1 and isinstance(x, np.ndarray):
        return np.array([value**2 for value in x.tolist()])
    return x * x


def small_control(state: Any) -> Array:
    """Returns how small the controls are, the mean over actuators, (N,): 1 for zero controls, 0 at the bounds."""
    return tolerance(state.ctrl, margin=1, value_at_margin=0, sigmoid="quadratic").mean(1)
