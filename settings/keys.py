"""Dotted keys of configurations."""

from collections.abc import Iterator
from typing import Any

# Arguments of an agent that the environment determines.
FROM_ENVIRONMENT = ("obs_dim", "obs_shape", "vector_dim", "obs_groups", "action_dim", "action_range")


def walk(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every dotted key with its value, a group before its members. A list is a value."""
    for key, value in config.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from walk(value, f"{prefix}{key}.")


def dotted(config: dict[str, Any]) -> dict[str, Any]:
    """Flattens a nested configuration to one level of dotted keys."""
    return {key: value for key, value in walk(config) if not isinstance(value, dict)}
