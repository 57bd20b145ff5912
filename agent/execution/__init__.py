"""How updates run; nothing here knows an algorithm."""

from typing import Any

from torch import Tensor

Result = tuple[dict[str, Tensor], Any]  # metrics and histogram inputs, as OffPolicyAgent.update_step returns them


class Eager:
    """Runs every update in Python."""

    def __call__(self, agent: Any, replay_buffer: Any) -> Result:
        return agent.compute_update(replay_buffer.sample(agent.batch_size), agent.noise)
