"""Whether an agent supports a replay buffer that draws by priority."""

from typing import Any

from utils import UserError


def require_support(agent: Any, replay_buffer: Any) -> None:
    """Raises UserError, before training, if the buffer draws by priority and the agent returns no priorities."""
    if hasattr(replay_buffer, "update_priorities") and not getattr(agent, "supports_prioritised_replay", False):
        name = type(agent).__name__
        raise UserError(
            f"replay_buffer: it draws by priority, and {name} returns no priorities; choose an agent that does, such "
            f"as sac, or replay_buffer=uniform ({name}.supports_prioritised_replay is false)"
        )
