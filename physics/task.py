"""What a task of the suite is here: observations and rewards as functions of the state of all worlds."""

import sys
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

Array = Any  # numpy's, or torch's: only operations that both have are used on states
HINGE = 3  # mjJNT_HINGE of MuJoCo's mjtJoint
XX, XY, XZ, YX, YY, YZ, ZX, ZY, ZZ = range(9)  # columns of xmat; XZ is the world's x of a body's own z axis


class Task(ABC):
    """Computes the observations and rewards of one task.

    Args:
        model: MuJoCo's model, `mujoco.MjModel`: indices are found by name here, never during a step.
        task: dm_control's task, which has the parameters of the reward.

    Attributes:
        model_fields: arrays of the model that the start of an episode writes; every world then has its own.
        on_device: whether mujoco-warp can step the task, too.
    """

    model_fields: ClassVar[tuple[str, ...]] = ()
    on_device: ClassVar[bool] = True

    def __init__(self, model: Any, task: Any):
        del model, task

    @abstractmethod
    def observation(self, state: Any) -> tuple[Array, ...]:
        """Returns the parts of the observation, each (N, k), in dm_control's order.

        Args:
            state: has MuJoCo's arrays of N worlds, by the names of MjData, each (N, *shape) (see physics.state.State).
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


def squared(x: Array) -> Array:
    """Returns x ** 2 (N,) as Python computes it for one number: by C's pow, whose last bit may differ from x * x."""
    return np.array([value**2 for value in x.tolist()]) if isinstance(x, np.ndarray) else x * x
