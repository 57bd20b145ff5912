"""A dog that stands, moves, or fetches a ball."""

import math
from typing import Any

from physics.task import ZX, ZZ, Array, Task, in_frame, joints, namespace, norm, sensors, tolerance

UPRIGHT = math.cos(math.radians(30))
STAND_FRACTION = 0.9  # of the heights in the model's default pose
BITE_MARGIN = 2  # m


class Stand(Task):
    """Rewards a high and upright body with its weight on its feet."""

    on_device = False

    def __init__(self, model: Any, task: Any):
        self.high = [model.body(name).id for name in ("torso", "pelvis")]
        self.upright = [model.body(name).id for name in ("skull", "torso", "pelvis")]
        self.torso, (self.angles, self.velocities) = self.high[0], joints(model)
        self.velocity = sensors(model, "torso_linvel")
        self.touch = sensors(model, "palm_L", "palm_R", "sole_L", "sole_R")
        inertial, forces = ("accelerometer", "velocimeter", "gyro"), ("foot_L", "foot_R", "hand_L", "hand_R")
        self.read = sensors(model, *inertial, *forces) + self.touch
        import mujoco  # late, since the import chooses an OpenGL backend

        mujoco.mj_kinematics(model, pose := mujoco.MjData(model))
        self.heights = (pose.xpos[self.high, 2] * STAND_FRACTION).tolist()
        self.weight = -model.opt.gravity[2] * model.body_subtreemass[self.torso]

    def moves(self, state: Any) -> Array:
        """Returns the velocities of the centres of mass in the torsos' frames, (N, 3)."""
        return in_frame(state.sensordata[:, self.velocity], state.xmat[:, self.torso])

    def observation(self, state: Any) -> tuple[Array, ...]:
        read, axes = state.sensordata, state.xmat[:, self.upright, ZX:]
        return (
            state.qpos[:, self.angles],
            state.qvel[:, self.velocities],
            state.xpos[:, self.high, 2],
            axes.reshape(len(axes), -1),
            self.moves(state),
            read[:, self.read],
            state.act,
        )

    def reward(self, state: Any) -> Array:
        torso, pelvis = (
            tolerance(state.xpos[:, body, 2], (height, math.inf), height)
            for body, height in zip(self.high, self.heights, strict=True)
        )
        upright = tolerance(state.xmat[:, self.upright, ZZ].T, (UPRIGHT, math.inf), UPRIGHT + 1, "linear", 0)
        touch = state.sensordata[:, self.touch].sum(1)
        carried = tolerance(touch, (self.weight, math.inf), self.weight, "linear", 0.9)
        return torso * pelvis * upright[0] * upright[1] * upright[2] * carried


class Move(Stand):
    """Rewards standing, and speed in the direction of the torso."""

    def __init__(self, model: Any, task: Any):
        super().__init__(model, task)
        self.speed = task._move_speed

    def reward(self, state: Any) -> Array:
        bounds, margin = (self.speed, 2 * self.speed), max(1.0, self.speed)
        return super().reward(state) * ((4 * tolerance(self.moves(state)[:, 0], bounds, margin, "linear", 0) + 1) / 5)


class Fetch(Stand):
    """Rewards standing, a mouth near the ball, and a ball near the target."""

    def __init__(self, model: Any, task: Any):
        super().__init__(model, task)
        self.head, self.ball, self.target = model.site("head").id, model.geom("ball").id, model.geom("target").id
        self.bites = [model.site("upper_bite").id, model.site("lower_bite").id]
        self.bite_radius, self.target_radius = model.site("upper_bite").size[0], model.geom("target").size[0]
        self.floor = model.geom("floor").size[0]
        self.head_body, self.ball_body = int(model.site_bodyid[self.head]), int(model.geom_bodyid[self.ball])
        self.head_root, self.ball_root = (int(model.body_rootid[body]) for body in (self.head_body, self.ball_body))

    def observation(self, state: Any) -> tuple[Array, ...]:
        frame, head, ball = state.site_xmat[:, self.head], state.site_xpos[:, self.head], state.geom_xpos[:, self.ball]
        head_velocity = velocity(state, self.head_body, self.head_root, head)
        ball_velocity = velocity(state, self.ball_body, self.ball_root, ball)
        return (
            *super().observation(state),
            in_frame(ball - head, frame),
            in_frame(ball_velocity - head_velocity, frame),
            in_frame(state.geom_xpos[:, self.target] - head, frame),
        )

    def reward(self, state: Any) -> Array:
        ball = state.geom_xpos[:, self.ball]
        upper, lower = (norm(ball - state.site_xpos[:, bite]) for bite in self.bites)
        reach = (6 * tolerance(0.5 * (upper + lower), (0, self.bite_radius), BITE_MARGIN, "reciprocal") + 1) / 7
        distance = norm(ball - state.geom_xpos[:, self.target])
        reach = namespace(reach).where(distance < 2 * self.target_radius, 1.0, reach)  # it may let go
        fetched = (tolerance(distance, (0, self.target_radius), self.floor, "reciprocal") + 1) / 2
        return super().reward(state) * reach * fetched


def velocity(state: Any, body: int, root: int, place: Array) -> Array:
    """Returns the velocities (N, 3) of points (N, 3) of a body, as MuJoCo's mj_objectVelocity.

    Args:
        root: the body's root; MuJoCo's velocities (`cvel`) refer to the centre of mass of the root's tree.
    """
    angular, linear = state.cvel[:, body, :3], state.cvel[:, body, 3:]
    return linear - namespace(place).linalg.cross(place - state.subtree_com[:, root], angular)


TASKS = {"stand": Stand, "walk": Move, "trot": Move, "run": Move, "fetch": Fetch}
