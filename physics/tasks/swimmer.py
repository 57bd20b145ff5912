"""A planar chain of links that swims to a target."""

from typing import Any

from physics.task import Array, Task, in_frame, norm, tolerance

HEAD_SENSORS = 12  # numbers before the links', which are six each: linear and angular velocity


class Swimmer(Task):
    """Rewards a nose at or near the target, which every episode places anew."""

    model_fields = ("geom_pos", "light_pos")

    def __init__(self, model: Any, task: Any):
        self.target, self.nose, self.head = model.geom("target").id, model.geom("nose").id, model.body("head").id
        self.radius = model.geom_size[self.target, 0]
        links = range(HEAD_SENSORS, model.nsensordata, 6)
        self.velocities = [link + place for link in links for place in (0, 1, 5)]  # along x and y, about z

    def to_target(self, state: Any) -> Array:
        """Returns the vectors from noses to targets in the heads' frames, (N, 2)."""
        to_target = state.geom_xpos[:, self.target] - state.geom_xpos[:, self.nose]
        return in_frame(to_target, state.xmat[:, self.head])[:, :2]

    def observation(self, state: Any) -> tuple[Array, ...]:
        return state.qpos[:, 3:], self.to_target(state), state.sensordata[:, self.velocities]

    def reward(self, state: Any) -> Array:
        return tolerance(norm(self.to_target(state)), (0, self.radius), 5 * self.radius, "long_tail")


TASKS = {"swimmer6": Swimmer, "swimmer15": Swimmer}
