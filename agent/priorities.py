"""Replay buffers that draw by priority: what an agent does for one, and the errors where it cannot.

Such a buffer has `update_priorities(index, priorities)`, and its batches are `replay_buffer.WeightedBatch`. The weights
belong in the critics' loss, and after each update the buffer gets new priorities of the batch's rows.
"""

import inspect
from typing import Any

from utils import UserError


def require_support(agent: Any, replay_buffer: Any) -> None:
    """Called before training.

    Raises:
        UserError: if the buffer draws by priority, and the agent or its critic's head takes no part in it.
    """
    if not hasattr(replay_buffer, "update_priorities"):
        return
    buffer, name = _name(replay_buffer), type(agent).__name__
    if not getattr(agent, "supports_prioritised_replay", False):
        raise UserError(
            f"replay_buffer: {buffer} draws by priority, and {name} returns no priorities; choose an agent that does, "
            f"such as sac, or replay_buffer.ReplayBuffer ({name}.supports_prioritised_replay is false)"
        )
    head = getattr(getattr(agent, "critic", None), "head", None)
    if head is not None and not (hasattr(head, "td_error") and "weight" in inspect.signature(head.loss).parameters):
        raise UserError(
            f"agent.critic.head: {type(head).__name__} needs loss(outputs, target, weight) and "
            f"td_error(outputs, target) for {buffer}, which draws by priority"
        )


def hand_back(agent: Any, replay_buffer: Any, seen: Any) -> None:
    """Gives a replay buffer that draws by priority what an update returned; nothing for any other.

    Args:
        seen: as the update step returned it: `priorities` and `index`, (B,) each, among others.

    Raises:
        UserError: if they are missing.
    """
    update_priorities = getattr(replay_buffer, "update_priorities", None)
    if update_priorities is None:
        return
    if "priorities" in seen and "index" in seen:
        update_priorities(seen["index"], seen["priorities"])
        return
    buffer, name = _name(replay_buffer), type(agent).__name__
    if not agent._rehearsals[agent.batch_size].weighted:
        raise UserError(
            f"replay_buffer: {buffer} has update_priorities, so its batches have to be replay_buffer.WeightedBatch; "
            "batch.weighted(weight, index) makes one"
        )
    raise UserError(
        f"{name}.update_step returns no priorities for {buffer}, which draws by them; add "
        "**self.priorities(batch, outputs, target) to the second dictionary that it returns"
    )


def _name(replay_buffer: Any) -> str:
    kind = type(replay_buffer)
    return f"{kind.__module__}.{kind.__qualname__}"
