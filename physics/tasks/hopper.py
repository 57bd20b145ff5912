"""A planar one-legged hopper that stands or hops."""

import math
from typing import Any

from physics.task import Array, Task, namespace, sensors, small_control, tolerance

STAND_HEIGHT = 0.6  # m
HOP_SPEED = 2  # m/s


class Hopper(Task):
    """Rewards a torso high above the foot, and either speed or small controls."""

    def __init__(self, model: Any, task: Any):
        self.torso, self.foot = model.body("torso").id, model.body("foot").id
        self.speed = sensors(model, "torso_subtreelinvel")[0]
        self.touch = sensors(model, "touch_toe", "touch_heel")
        self.hops = task._hopping

    def observation(self, state: Any) -> tuple[Array, ...]:
        touch = state.sensordata[:, self.touch]
        return state.qpos[:, 1:], state.qvel, namespace(touch).log1p(touch)

    def reward(self, state: Any) -> Array:
        height = state.xipos[:, self.torso, 2] - state.xipos[:, self.foot, 2]
        standing = tolerance(height, (STAND_HEIGHT, 2))
        if self.hops:
            speed = state.sensordata[:, self.speed]
            return standing * tolerance(speed, (HOP_SPEED, math.inf), HOP_SPEED / 2, "linear", 0.5)
        return standing * ((small_control(state) + 4) / 5)


TASKS = dict.fromkeys(["stand", "hop"], Hopper)
