"""Updates operation by operation."""

from typing import Any

import torch

Result = tuple[dict[str, torch.Tensor], Any]  # as OffPolicyAgent.update_step's


class Eager:
    """An update as Python runs it."""

    def __call__(self, agent: Any, replay_buffer: Any) -> Result:
        batch = replay_buffer.sample(agent.batch_size)
        return agent.compute(batch, agent.draw(batch))
