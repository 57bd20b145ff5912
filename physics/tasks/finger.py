"""A finger that spins a body on a hinge, or turns it to an angle."""

from typing import Any

from physics.task import Array, Task, namespace, norm, sensors

SPIN_SPEED = 15.0  # rad/s


class Spin(Task):
    """Rewards every step at which the body spins fast enough."""

    def __init__(self, model: Any, task: Any):
        self.joints = sensors(model, "proximal", "distal")
        self.velocities = sensors(model, "proximal_velocity", "distal_velocity", "hinge_velocity")
        self.touch = sensors(model, "touchtop", "touchbottom")
        self.tip, self.hinge = sensors(model, "tip")[::2], sensors(model, "spinner")[::2]  # x and z

    def observation(self, state: Any) -> tuple[Array, ...]:
        read = state.sensordata
        touch = read[:, self.touch]
        tip = read[:, self.tip] - read[:, self.hinge]
        return read[:, self.joints], tip, read[:, self.velocities], namespace(touch).log1p(touch)

    def reward(self, state: Any) -> Array:
        return 1.0 * (state.sensordata[:, self.velocities[-1]] <= -SPIN_SPEED)


class Turn(Spin):
    """Rewards every step at which the body's tip is in the target, which every episode places anew."""

    model_fields = ("site_pos", "site_size")

    def __init__(self, model: Any, task: Any):
        super().__init__(model, task)
        self.target, self.radius = sensors(model, "target")[::2], task._target_radius

    def distance(self, state: Any) -> Array:
        """Returns the distances to the targets' edges, (N,), negative inside, and the targets' places, (N, 2)."""
        read = state.sensordata
        tip, target = read[:, self.tip] - read[:, self.hinge], read[:, self.target] - read[:, self.hinge]
        return norm(target - tip) - self.radius, target

    def observation(self, state: Any) -> tuple[Array, ...]:
        distance, target = self.distance(state)
        return *super().observation(state), target, distance[:, None]

    def reward(self, state: Any) -> Array:
        return 1.0 * (self.distance(state)[0] <= 0)


TASKS = {"spin": Spin, "turn_easy": Turn, "turn_hard": Turn}
