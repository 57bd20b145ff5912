"""Updates operation by operation."""

from typing import Any

import torch

Result = tuple[dict[str, torch.Tensor], Any]  # as OffPolicyAgent.update_step's


def frozen_by(agent: Any) -> tuple[Any, ...]:
    """What Python goes by in an agent's updates; each of its values needs a recording, or a graph, of its own."""
    return agent.autocast_dtype, agent.training, agent.phase, *sorted(agent.pattern.items())


class Eager:
    """An update as Python runs it."""

    def __call__(self, agent: Any, replay_buffer: Any) -> Result:
        batch = replay_buffer.sample(agent.batch_size)
        return agent.compute(batch, agent.draw(batch))
