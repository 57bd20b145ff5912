"""The keys of a user's class: its own parameters, and those of the constructors that it passes keywords on to."""

from functools import partial
from typing import Any

import pytest

from settings import compose
from settings.keys import dotted, walk
from settings.schema import check
from settings.types import PositiveInt, UnitInterval
from sinks.sink import Sink
from utils import UserError


class Base(Sink):
    """A minimal sink."""

    def __init__(self, log_dir: Any, depth: PositiveInt, rate: float = 1.0): ...


class Middle(Base):
    def __init__(self, *args: Any, rate: UnitInterval = 0.5, **kwargs: Any): ...


class Mixin:
    """Has no `__init__` of its own, so it is passed over."""


class Leaf(Mixin, Middle):
    def __init__(self, label: str, **rest: Any): ...


class Closed(Middle):
    def __init__(self, log_dir: Any, label: str): ...


Bound = partial(Leaf, label="a")


def checked(target: str, **values: Any) -> dict[str, Any]:
    config = compose.plain(compose.compose_config("train", []))
    config["logger"]["sinks"] = {"own": {"_target_": f"{__name__}.{target}", "_partial_": True, **values}}
    return check(config).logger["sinks"]["own"]


@pytest.mark.parametrize(
    ("target", "values"),
    [
        ("Leaf", {"label": "a", "depth": 3.0, "rate": 0.5}),
        ("Leaf", {"label": "a", "depth": 3}),
        ("Bound", {"depth": 3}),
        ("Closed", {"label": "a"}),
    ],
)
def test_what_a_class_passes_on_is_its_base_classes_to_say(target: str, values: dict[str, Any]) -> None:
    converted = checked(target, **values)
    assert {key: converted[key] for key in values} == values
    assert type(converted.get("depth", 3)) is int


@pytest.mark.parametrize(
    ("target", "values", "message"),
    [
        ("Leaf", {"label": "a", "depth": 0}, "own.depth=0: it should be greater than 0"),
        ("Leaf", {"label": "a", "depth": 3, "rate": 2}, "own.rate=2: it should be less than or equal to 1"),
        ("Leaf", {"label": "a"}, "own.depth is missing"),
        ("Leaf", {"depth": 3}, "own.label is missing"),
        ("Leaf", {"label": "a", "dept": 3}, "did you mean logger.sinks.own.depth"),
        ("Leaf", {"label": "a", "depth": 3, "rest": 1}, "unknown key"),
        ("Leaf", {"label": "a", "depth": 3, "args": 1}, "unknown key"),
        ("Bound", {}, "own.depth is missing"),
        ("Closed", {"label": "a", "depth": 3}, "own.depth=3: unknown key"),
    ],
)
def test_a_mistake_there_is_found_too(target: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        checked(target, **values)
    assert message in str(caught.value)


def test_nested_settings_are_walked_in_one_way() -> None:
    nested = {"a": {"b": 1, "c": {"d": [2, {"e": 3}]}}, "f": {}, "g": None}
    assert [key for key, _ in walk(nested)] == ["a", "a.b", "a.c", "a.c.d", "f", "g"]
    assert dotted(nested) == {"a.b": 1, "a.c.d": [2, {"e": 3}], "g": None}
