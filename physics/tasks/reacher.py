"""A planar arm that reaches for a target."""

from typing import Any

from physics.task import Array, Task, norm, tolerance


class Reacher(Task):
    """Rewards every step at which the finger is in the target, which every episode places anew."""

    model_fields = ("geom_pos", "geom_size")

    def __init__(self, model: Any, task: Any):
        self.target, self.finger = model.geom("target").id, model.geom("finger").id
        self.radii = float(task._target_size + model.geom_size[self.finger, 0])

    def to_target(self, state: Any) -> Array:
        """Returns the vectors from fingers to targets, (N, 2)."""
        return state.geom_xpos[:, self.target, :2] - state.geom_xpos[:, self.finger, :2]

    def observation(self, state: Any) -> tuple[Array, ...]:
        return state.qpos, self.to_target(state), state.qvel

    def reward(self, state: Any) -> Array:
        return tolerance(norm(self.to_target(state)), (0, self.radii))


TASKS = {"easy": Reacher, "hard": Reacher}
