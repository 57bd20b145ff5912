"""The manipulator's arm, and boxes to stack."""

import math
from typing import Any

from physics.task import Array, namespace, norm, tolerance
from physics.tasks.manipulator import CLOSE, Arm


class Stack(Arm):
    """Rewards a box at the target and a hand away from it."""

    axes, target_turns = "xyz", False

    def __init__(self, model: Any, task: Any):
        super().__init__(model, task, task._box_names, "target")
        self.sites = [model.site(name).id for name in [*task._box_names, "grasp"]]
        self.target_site, self.size = model.site("target").id, model.geom("target").size[0]

    def reward(self, state: Any) -> Array:
        distances = norm(state.site_xpos[:, self.sites] - state.site_xpos[:, None, self.target_site])
        box, hand = namespace(distances).amin(distances[:, :-1], 1), distances[:, -1]
        return tolerance(box, margin=2 * self.size) * tolerance(hand, (0.1, math.inf), CLOSE)


TASKS = {"stack_2": Stack, "stack_4": Stack}
