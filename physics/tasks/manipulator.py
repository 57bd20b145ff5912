"""A planar arm with a hand that brings a ball or a peg to a target, or into a cup or slot."""

from typing import Any

from physics.task import Array, Task, joints, namespace, norm, tolerance

CLOSE = 0.01  # m
ARM = ["arm_root", "arm_shoulder", "arm_elbow", "arm_wrist", "finger", "fingertip", "thumb", "thumbtip"]


class Arm(Task):
    """Observes the arm and, if dm_control's task is fully observable, props and a target.

    Every episode places the target anew.
    """

    model_fields = ("body_pos", "body_quat")
    axes = "xzy"  # the order of a prop's velocities
    target_turns = True

    def __init__(self, model: Any, task: Any, props: list[str], target: str):
        self.sees = task._fully_observable
        self.angles, self.speeds = joints(model, *ARM)
        _, self.prop_speeds = joints(model, *(f"{prop}_{axis}" for prop in props for axis in self.axes))
        self.hand, self.target = model.body("hand").id, model.body(target).id
        self.props = [model.body(prop).id for prop in props]

    def observation(self, state: Any) -> tuple[Array, ...]:
        angles, touch = state.qpos[:, self.angles], state.sensordata
        xp = namespace(angles)
        circle = xp.stack([xp.sin(angles), xp.cos(angles)], 2).reshape(len(angles), -1)
        arm = circle, state.qvel[:, self.speeds], xp.log1p(touch)
        if not self.sees:
            return arm
        place, turn = self.poses(state, self.target)
        return (
            *arm,
            *self.poses(state, self.hand),
            *(part for prop in self.props for part in self.poses(state, prop)),
            state.qvel[:, self.prop_speeds],
            place,
            *([turn] if self.target_turns else []),
        )

    def poses(self, state: Any, body: int) -> tuple[Array, Array]:
        """Returns positions and rotations in the plane, each (N, 2)."""
        return state.xpos[:, body, ::2], state.xquat[:, body, ::2]


class Bring(Arm):
    """Rewards a prop at the target; if it is a peg, also a hand that holds it."""

    def __init__(self, model: Any, task: Any):
        super().__init__(model, task, [task._object], task._target)
        self.peg = task._use_peg
        names = (
            "peg target_peg peg_tip target_peg_tip peg_grasp grasp peg_pinch pinch" if self.peg else "ball target_ball"
        )
        sites = [model.site(name).id for name in names.split()]
        self.pairs = sites[::2], sites[1::2]

    def reward(self, state: Any) -> Array:
        first, second = self.pairs
        distances = norm(state.site_xpos[:, first] - state.site_xpos[:, second])
        close = [tolerance(distances[:, pair], (0, CLOSE), 2 * CLOSE) for pair in range(len(first))]
        if not self.peg:
            return close[0]
        bring, bring_tip, grasp, pinch = close
        return namespace(distances).maximum((bring + bring_tip) / 2, (grasp + pinch) / 2 / 3)


TASKS = dict.fromkeys(["bring_ball", "bring_peg", "insert_ball", "insert_peg"], Bring)
