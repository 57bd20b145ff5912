"""A four-legged robot that walks, runs, or fetches a ball."""

import math
from typing import Any

from physics.task import ZZ, Array, Task, in_frame, joints, namespace, norm, sensors, tolerance

TOES = ("front_left", "front_right", "back_right", "back_left")


class Quadruped(Task):
    """Provides the observation that its tasks share, and rewards an upright torso."""

    def __init__(self, model: Any, task: Any):
        self.torso, (self.angles, self.velocities) = model.body("torso").id, joints(model)
        self.velocity = sensors(model, "velocimeter")
        self.imu = sensors(model, "imu_accel", "imu_gyro")
        self.forces = sensors(model, *(f"{kind}_toe_{toe}" for kind in ("force", "torque") for toe in TOES))

    def observation(self, state: Any) -> tuple[Array, ...]:
        read = state.sensordata
        forces = read[:, self.forces]
        return (
            state.qpos[:, self.angles],
            state.qvel[:, self.velocities],
            state.act,
            read[:, self.velocity],
            state.xmat[:, self.torso, ZZ:],
            read[:, self.imu],
            namespace(forces).arcsinh(forces),
        )

    def reward(self, state: Any) -> Array:
        return tolerance(state.xmat[:, self.torso, ZZ], (1, math.inf), 2, "linear", 0)


class Move(Quadruped):
    """Rewards an upright torso, and speed in its direction."""

    def __init__(self, model: Any, task: Any):
        super().__init__(model, task)
        self.speed = task._desired_speed

    def reward(self, state: Any) -> Array:
        forward = state.sensordata[:, self.velocity[0]]
        return super().reward(state) * tolerance(forward, (self.speed, math.inf), self.speed, "linear", 0.5)


class Fetch(Quadruped):
    """Rewards an upright torso, nearness to the ball, and nearness of the ball to the target."""

    def __init__(self, model: Any, task: Any):
        super().__init__(model, task)
        self.ball, self.target = model.body("ball").id, model.site("target").id
        self.reach = model.site("workspace").id
        self.root, self.ball_root = int(model.joint("root").dofadr[0]), int(model.joint("ball_root").dofadr[0])
        self.arena = model.geom("floor").size[0] * math.sqrt(2)
        self.reach_radius = model.site_size[self.reach, 0] + model.geom("ball").size[0]
        self.target_radius = model.site_size[self.target, 0]

    def observation(self, state: Any) -> tuple[Array, ...]:
        torso, frame, ball = state.xpos[:, self.torso], state.xmat[:, self.torso], self.ball_root
        velocity = state.qvel[:, ball : ball + 3] - state.qvel[:, self.root : self.root + 3]
        parts = state.xpos[:, self.ball] - torso, velocity, state.qvel[:, ball + 3 : ball + 6]
        # One matmul, as in dm_control: BLAS may round separate products of the vectors differently.
        ball_state = namespace(frame).stack(parts, 1) @ frame.reshape(-1, 3, 3)
        return (
            *super().observation(state),
            ball_state.reshape(-1, 9),
            in_frame(state.site_xpos[:, self.target] - torso, frame),
        )

    def near(self, state: Any, site: int, radius: float) -> Array:
        """Returns how near the ball is to a site, (N,)."""
        distance = norm(state.site_xpos[:, site, :2] - state.xpos[:, self.ball, :2])
        return tolerance(distance, (0, radius), self.arena, "linear", 0)

    def reward(self, state: Any) -> Array:
        fetched = self.near(state, self.target, self.target_radius)
        return super().reward(state) * (self.near(state, self.reach, self.reach_radius) * (0.5 + 0.5 * fetched))


# Not "escape": each episode makes a new terrain, which would have to be sent to a renderer, and needs OpenGL.
TASKS = {"walk": Move, "run": Move, "fetch": Fetch}
