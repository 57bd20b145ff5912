"""A ball on a string that is to be caught in a cup."""

from typing import Any

from physics.task import Array, Task


class BallInCup(Task):
    """Rewards every step at which the ball is in the cup."""

    def __init__(self, model: Any, task: Any):
        self.target, self.ball = model.site("target").id, model.body("ball").id
        self.reach = (model.site("target").size[::2] - model.geom("ball").size[0]).tolist()  # x and z

    def observation(self, state: Any) -> tuple[Array, ...]:
        return state.qpos, state.qvel

    def reward(self, state: Any) -> Array:
        to_target = state.site_xpos[:, self.target, ::2] - state.xpos[:, self.ball, ::2]
        inside = [abs(to_target[:, axis]) < self.reach[axis] for axis in (0, 1)]
        return 1.0 * (inside[0] & inside[1])


TASKS = {"catch": BallInCup}
