"""The spaces of a Minari data set. They are parsed within limits, and their arrays flattened.

A data set may be untrusted: sizes are checked before anything is allocated.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_NUMBERS, MOST_DEPTH = 2**22, 20  # limits: numbers in one observation; levels of nested spaces
NUMBERS = "biuf"  # the kinds of numpy dtypes that are read


@dataclass(frozen=True)
class Space:
    """A Gymnasium space.

    Attributes:
        kind: Box, Discrete, Dict or Tuple.
        shape, low, high: a Box's shape and bounds; for a Discrete, () and its first and last choice.
        n, start: a Discrete's number of choices and its first one.
        parts: the spaces of a Dict or Tuple, by the names of their arrays in the file.
    """

    kind: str
    shape: tuple[int, ...] = ()
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    n: int = 0
    start: int = 0
    parts: tuple[tuple[str, "Space"], ...] = ()

    @property
    def width(self) -> int:
        """The length of a flattened element, as gymnasium.spaces.flatten returns it."""
        if self.kind == "Box":
            return math.prod(self.shape)
        return self.n if self.kind == "Discrete" else sum(part.width for _, part in self.parts)

    def flat(self, read: Callable[[str, tuple[int, ...]], np.ndarray], name: str) -> np.ndarray:
        """Reads elements and flattens them to (T, width), float32.

        `read` returns an array, given its name and the required shape of its rows; `name` is this space's array.
        """
        if self.kind == "Box":
            rows = read(name, self.shape)
            with np.errstate(over="ignore"):  # Episode.fault finds numbers that are too large
                return rows.reshape(len(rows), -1).astype(np.float32)
        if self.kind == "Discrete":
            return np.eye(self.n, dtype=np.float32)[self.choices(read(name, ()), name)]
        return np.concatenate([part.flat(read, f"{name}/{key}") for key, part in self.parts], axis=1)

    def choices(self, values: np.ndarray, name: str) -> np.ndarray:
        """Converts a Discrete's elements (T,) to integers from 0; raises ValueError for a value that is no choice."""
        choices = values.astype(np.int64) - self.start
        if (choices + self.start != values).any() or not ((choices >= 0) & (choices < self.n)).all():
            raise ValueError(f"{name}: a choice outside of {self.n}")
        return choices


def parse(described: Any, depth: int = 0) -> Space:
    """Parses a space from Minari's JSON; raises ValueError for one of another kind, or that is too large."""
    kind = described.get("type") if isinstance(described, dict) else None
    if depth > MOST_DEPTH:
        raise ValueError(f"more than {MOST_DEPTH} spaces within each other")
    if kind == "Box":
        shape = tuple(_count(size, MOST_NUMBERS) for size in described["shape"])
        if math.prod(shape) > MOST_NUMBERS or np.dtype(str(described["dtype"])[:16]).kind not in NUMBERS:
            raise ValueError("a Box that is too large, or not of numbers")
        low, high = (np.asarray(described[side], np.float64) for side in ("low", "high"))
        if low.shape not in (shape, ()) or high.shape not in (shape, ()):
            raise ValueError("bounds of another shape than their Box")
        return Space(kind, shape, np.broadcast_to(low, shape), np.broadcast_to(high, shape))
    if kind == "Discrete":
        n, start = _count(described["n"], MOST_NUMBERS), int(described.get("start", 0))
        return Space(kind, (), np.asarray(float(start)), np.asarray(float(start + n - 1)), n, start)
    if kind == "Dict":
        return Space(kind, parts=tuple((str(k), parse(v, depth + 1)) for k, v in described["subspaces"].items()))
    if kind == "Tuple":
        parts = [(f"_index_{i}", parse(v, depth + 1)) for i, v in enumerate(described["subspaces"])]
        return Space(kind, parts=tuple(parts))
    raise ValueError(f"a space of type {str(kind)[:40]}; Box, Discrete, Dict and Tuple can be read")


def _count(value: Any, most: int) -> int:
    if type(value) is not int or not 0 < value <= most:
        raise ValueError(f"{str(value)[:40]} is no size from 1 to {most}")
    return value
