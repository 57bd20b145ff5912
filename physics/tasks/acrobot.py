"""Two links with a motor between them."""

from typing import Any

from physics.task import XZ, ZZ, Array, Task, norm, tolerance


class Acrobot(Task):
    """Rewards the tip at the target high up or, unless the task is sparse, near it."""

    def __init__(self, model: Any, task: Any):
        self.arms = [model.body("upper_arm").id, model.body("lower_arm").id]
        self.target, self.tip = model.site("target").id, model.site("tip").id
        self.radius, self.margin = model.site_size[self.target, 0], 0 if task._sparse else 1

    def observation(self, state: Any) -> tuple[Array, ...]:
        return state.xmat[:, self.arms, XZ], state.xmat[:, self.arms, ZZ], state.qvel

    def reward(self, state: Any) -> Array:
        distance = norm(state.site_xpos[:, self.target] - state.site_xpos[:, self.tip])
        return tolerance(distance, (0, self.radius), self.margin)


TASKS = {"swingup": Acrobot, "swingup_sparse": Acrobot}
