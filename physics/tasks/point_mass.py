"""A point mass that is driven to the middle of a plane."""

from typing import Any

from physics.task import Array, Task, norm, small_control, tolerance


class PointMass(Task):
    """Rewards nearness to the target with small controls."""

    def __init__(self, model: Any, task: Any):
        self.target, self.mass = model.geom("target").id, model.geom("pointmass").id
        self.radius = model.geom_size[self.target, 0]

    def observation(self, state: Any) -> tuple[Array, ...]:
        return state.qpos, state.qvel

    def reward(self, state: Any) -> Array:
        distance = norm(state.geom_xpos[:, self.target] - state.geom_xpos[:, self.mass])
        return tolerance(distance, (0, self.radius), self.radius) * ((small_control(state) + 4) / 5)


class Hard(PointMass):
    """The same task, but every episode mixes the two motors anew."""

    model_fields, on_device = ("wrap_prm",), False


TASKS = {"easy": PointMass, "hard": Hard}
