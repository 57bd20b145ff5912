"""A pendulum that swings up with little torque."""

import math
from typing import Any

from physics.task import XZ, ZZ, Array, Task, tolerance

COSINE = math.cos(math.radians(8))


class Pendulum(Task):
    """Rewards every step at which the pole is nearly upright."""

    def __init__(self, model: Any, task: Any):
        self.pole = model.body("pole").id

    def observation(self, state: Any) -> tuple[Array, ...]:
        return state.xmat[:, self.pole, (ZZ, XZ)], state.qvel

    def reward(self, state: Any) -> Array:
        return tolerance(state.xmat[:, self.pole, ZZ], (COSINE, 1))


TASKS = {"swingup": Pendulum}
