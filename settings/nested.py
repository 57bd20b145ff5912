"""Nested configurations, walked in one way: by the dotted keys that a command line uses."""

from collections.abc import Iterator
from typing import Any


def walk(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every dotted key and its value, a group (a dictionary) before what is in it; a list is a value."""
    for key, value in config.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from walk(value, f"{prefix}{key}.")


def dotted(config: dict[str, Any]) -> dict[str, Any]:
    """A nested configuration as one level of dotted keys, without the groups."""
    return {key: value for key, value in walk(config) if not isinstance(value, dict)}
