"""Checks and priorities for prioritised replay: what agents check and return for a replay buffer with
`update_priorities`."""

import inspect
from typing import Any

from utils import UserError


def require_support(agent: Any, replay_buffer: Any) -> None:
    """Raises UserError, before training, if the buffer draws by priority and the agent does not support it."""
    if not hasattr(replay_buffer, "update_priorities"):
        return
    buffer, name = type(getattr(replay_buffer, "sampling", None) or replay_buffer).__name__, type(agent).__name__
    if not getattr(agent, "supports_prioritised_replay", False):
        raise UserError(
            f"replay_buffer: {buffer} draws by priority, and {name} returns no priorities; choose an agent that does, "
            f"such as sac, or replay_buffer=uniform ({name}.supports_prioritised_replay is false)"
        )
    head = getattr(getattr(agent, "critic", None), "head", None)
    if head is not None and not (hasattr(head, "td_error") and "weight" in inspect.signature(head.loss).parameters):
        raise UserError(
            f"agent.critic.head: {type(head).__name__} needs loss(outputs, target, weight) and "
            f"td_error(outputs, target) for {buffer}, which draws by priority"
        )


def return_priorities(agent: Any, replay_buffer: Any, outputs: Any) -> None:
    """Passes the `priorities` and `index`, (B,) each, that an update returned to a buffer that draws by priority.

    Raises:
        UserError: if the update returned none.
    """
    if not hasattr(replay_buffer, "update_priorities"):
        return
    if not {"priorities", "index"} <= outputs.keys():
        raise UserError(
            f"replay_buffer: {type(replay_buffer).__name__} draws by priority and gets none back; its batches have to "
            f"be WeightedBatch, and {type(agent).__name__}.update_step has to return **self.priorities(...)"
        )
    replay_buffer.update_priorities(outputs["index"], outputs["priorities"])
