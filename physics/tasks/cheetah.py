"""A planar cheetah that runs."""

import math
from typing import Any

from physics.task import Array, Task, sensors, tolerance

RUN_SPEED = 10  # m/s


class Cheetah(Task):
    """Rewards the speed of the torso's subtree; the observation leaves out the horizontal position."""

    def __init__(self, model: Any, task: Any):
        self.speed = sensors(model, "torso_subtreelinvel")[0]

    def observation(self, state: Any) -> tuple[Array, ...]:
        return state.qpos[:, 1:], state.qvel

    def reward(self, state: Any) -> Array:
        return tolerance(state.sensordata[:, self.speed], (RUN_SPEED, math.inf), RUN_SPEED, "linear", 0)


TASKS = {"run": Cheetah}
