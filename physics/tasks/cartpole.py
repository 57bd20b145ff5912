"""A cart with one or several poles."""

from typing import Any

from physics.task import XZ, ZZ, Array, Task, namespace, small_control, tolerance

CART_RANGE = (-0.25, 0.25)
ANGLE_COSINE_RANGE = (0.995, 1)


class Cartpole(Task):
    """Rewards upright poles, a centred cart, small controls and slow poles; if sparse, poles and cart within bounds."""

    def __init__(self, model: Any, task: Any):
        self.sparse = task._sparse

    def observation(self, state: Any) -> tuple[Array, ...]:
        poles = state.xmat[:, 2:, (ZZ, XZ)]
        return state.qpos[:, :1], poles.reshape(len(poles), -1), state.qvel

    def reward(self, state: Any) -> Array:
        cart, cosines = state.qpos[:, 0], state.xmat[:, 2:, ZZ]
        if self.sparse:
            return tolerance(cart, CART_RANGE) * tolerance(cosines, ANGLE_COSINE_RANGE).prod(1)
        upright = ((cosines + 1) / 2).mean(1)
        centered = (1 + tolerance(cart, margin=2)) / 2
        gentle = (4 + small_control(state)) / 5  # there is one actuator
        slow = (1 + namespace(cart).amin(tolerance(state.qvel[:, 1:], margin=5), 1)) / 2
        return upright * gentle * slow * centered


TASKS = dict.fromkeys(["balance", "balance_sparse", "swingup", "swingup_sparse", "two_poles", "three_poles"], Cartpole)
