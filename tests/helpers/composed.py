"""Validated settings by their overrides; Hydra composes each set of them once a session."""

from copy import deepcopy
from functools import cache
from typing import Any

from settings import compose
from settings.schema import Settings, check


@cache
def _plain(overrides: tuple[str, ...]) -> dict[str, Any]:
    return compose.plain(compose.compose_config("train", list(overrides)))


def settings(*overrides: str) -> Settings:
    return check(deepcopy(_plain(overrides)))
