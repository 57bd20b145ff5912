"""The spaces that a data set of Minari's describes, read as plain values within limits; and their arrays, made flat.

A data set may be a stranger's, so nothing is built of what it says until its sizes are known.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_NUMBERS, MOST_DEPTH = 2**22, 20  # of one observation; of spaces within spaces
NUMBERS = "biuf"  # the kinds of numpy's types that are read


@dataclass(frozen=True)
class Space:
    """A space of Gymnasium's, or several.

    Attributes:
        kind: Box, Discrete, Dict or Tuple.
        shape: of a Box.
        low, high: its bounds.
        n, start: of a Discrete.
        parts: of a Dict or a Tuple, by the name that their arrays have in the file.
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
        """Numbers in one element, made flat as gymnasium.spaces.flatten makes it."""
        if self.kind == "Box":
            return math.prod(self.shape)
        return self.n if self.kind == "Discrete" else sum(part.width for _, part in self.parts)

    def flat(self, read: Callable[[str, tuple[int, ...]], np.ndarray], name: str) -> np.ndarray:
        """Elements, (T, width), float32.

        Args:
            read: gives the array of a name, given the shape that one of its rows has to have.
            name: of this space's array.
        """
        if self.kind == "Box":
            rows = read(name, self.shape)
            with np.errstate(over="ignore"):  # what is too large is found later
                return rows.reshape(len(rows), -1).astype(np.float32)
        if self.kind == "Discrete":
            chosen = read(name, ()).astype(np.int64) - self.start
            if len(chosen) and not 0 <= chosen.min() <= chosen.max() < self.n:
                raise ValueError(f"{name}: a choice outside of {self.n}")
            return np.eye(self.n, dtype=np.float32)[chosen]
        return np.concatenate([part.flat(read, f"{name}/{key}") for key, part in self.parts], axis=1)


def parse(described: Any, depth: int = 0) -> Space:
    """A space as Minari writes it, from the values of its JSON.

    Raises:
        ValueError: for any other.
    """
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
        n = _count(described["n"], MOST_NUMBERS)
        return Space(kind, n=n, start=int(described.get("start", 0)))
    if kind == "Dict":
        return Space(kind, parts=tuple((str(k), parse(v, depth + 1)) for k, v in described["subspaces"].items()))
    if kind == "Tuple":
        parts = [(f"_index_{i}", parse(v, depth + 1)) for i, v in enumerate(described["subspaces"])]
        return Space(kind, parts=tuple(parts))
    raise ValueError(f"a space of type {str(kind)[:40]}; Box, Discrete, Dict and Tuple can be read")


def _count(value: Any, most: int) -> int:
    if type(value) is not int or not 0 < value <= most:
        raise ValueError(f"{str(value)[:40]} where a size goes")
    return value
