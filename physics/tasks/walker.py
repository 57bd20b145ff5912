"""A planar walker that stands, walks or runs."""

import math
from typing import Any

from physics.task import XX, XZ, ZZ, Array, Task, sensors, tolerance

STAND_HEIGHT = 1.2  # m


class Walker(Task):
    """Rewards a high and upright torso and, except in `stand`, speed."""

    def __init__(self, model: Any, task: Any):
        self.torso, self.speed = model.body("torso").id, sensors(model, "torso_subtreelinvel")[0]
        self.move_speed = task._move_speed

    def observation(self, state: Any) -> tuple[Array, ...]:
        orientations = state.xmat[:, 1:, (XX, XZ)]
        height = state.xpos[:, self.torso, 2:]
        return orientations.reshape(len(orientations), -1), height, state.qvel

    def reward(self, state: Any) -> Array:
        standing = tolerance(state.xpos[:, self.torso, 2], (STAND_HEIGHT, math.inf), STAND_HEIGHT / 2)
        upright = (1 + state.xmat[:, self.torso, ZZ]) / 2
        stands = (3 * standing + upright) / 4
        if self.move_speed == 0:
            return stands
        speed = state.sensordata[:, self.speed]
        moves = tolerance(speed, (self.move_speed, math.inf), self.move_speed / 2, "linear", 0.5)
        return stands * (5 * moves + 1) / 6


TASKS = dict.fromkeys(["stand", "walk", "run"], Walker)
