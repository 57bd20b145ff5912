"""A fish that stays upright or swims to a target."""

from typing import Any

from physics.task import ZZ, Array, Task, in_frame, joints, norm, tolerance


class Upright(Task):
    """Rewards an upright torso."""

    def __init__(self, model: Any, task: Any):
        self.torso, (self.joints, _) = model.body("torso").id, joints(model)

    def observation(self, state: Any) -> tuple[Array, ...]:
        return state.qpos[:, self.joints], state.xmat[:, self.torso, ZZ:], state.qvel

    def reward(self, state: Any) -> Array:
        return tolerance(state.xmat[:, self.torso, ZZ], (1, 1), 1)


class Swim(Upright):
    """Rewards an upright torso and a mouth at the target, which every episode places anew."""

    model_fields = ("geom_pos",)

    def __init__(self, model: Any, task: Any):
        super().__init__(model, task)
        self.mouth, self.target = model.geom("mouth").id, model.geom("target").id
        self.radii = model.geom_size[[self.mouth, self.target], 0].sum()

    def to_target(self, state: Any) -> Array:
        """Returns the vectors from mouths to targets in the mouths' frames, (N, 3)."""
        to_target = state.geom_xpos[:, self.target] - state.geom_xpos[:, self.mouth]
        return in_frame(to_target, state.geom_xmat[:, self.mouth])

    def observation(self, state: Any) -> tuple[Array, ...]:
        joints, upright, velocity = super().observation(state)
        return joints, upright, self.to_target(state), velocity

    def reward(self, state: Any) -> Array:
        in_target = tolerance(norm(self.to_target(state)), (0, self.radii), 2 * self.radii)
        return (7 * in_target + 0.5 * (state.xmat[:, self.torso, ZZ] + 1)) / 8


TASKS = {"upright": Upright, "swim": Swim}
