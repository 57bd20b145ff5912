"""A humanoid that stands, walks or runs."""

import math
from typing import Any

from physics.task import ZX, ZY, ZZ, Array, Task, in_frame, norm, sensors, small_control, tolerance

STAND_HEIGHT = 1.4  # m, of the head


class Humanoid(Task):
    """Rewards a high head, an upright torso, small controls, and speed or, in `stand`, little speed."""

    torso_name, limb_names = "torso", ("left_hand", "left_foot", "right_hand", "right_foot")
    up = ZZ  # the torso's axis that points up

    def __init__(self, model: Any, task: Any):
        self.torso, self.head = model.body(self.torso_name).id, model.body("head").id
        self.limbs = [model.body(name).id for name in self.limb_names]
        self.velocity = sensors(model, f"{self.torso_name}_subtreelinvel")
        self.move_speed, self.pure_state = task._move_speed, getattr(task, "_pure_state", False)

    def observation(self, state: Any) -> tuple[Array, ...]:
        if self.pure_state:
            return state.qpos, state.qvel
        torso = state.xmat[:, self.torso]
        limbs = in_frame(state.xpos[:, self.limbs] - state.xpos[:, None, self.torso], torso)
        return (
            state.qpos[:, 7:],
            state.xpos[:, self.head, 2:],
            limbs,
            torso[:, (ZX, ZY, ZZ)],
            state.sensordata[:, self.velocity],
            state.qvel,
        )

    def reward(self, state: Any) -> Array:
        standing = tolerance(state.xpos[:, self.head, 2], (STAND_HEIGHT, math.inf), STAND_HEIGHT / 4)
        upright = tolerance(state.xmat[:, self.torso, self.up], (0.9, math.inf), 1.9, "linear", 0)
        stands = (4 + small_control(state)) / 5 * (standing * upright)
        horizontal = state.sensordata[:, self.velocity[:2]]
        if self.move_speed == 0:
            return stands * tolerance(horizontal, margin=2).mean(1)
        moves = tolerance(norm(horizontal), (self.move_speed, math.inf), self.move_speed, "linear", 0)
        return stands * ((5 * moves + 1) / 6)


TASKS = dict.fromkeys(["stand", "walk", "run", "run_pure_state"], Humanoid)
