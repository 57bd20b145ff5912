"""MuJoCo's arrays of all worlds."""

from collections.abc import Sequence
from typing import Any

import numpy as np


class State:
    """Gathers MjData's arrays, by MuJoCo's names, with one row per chosen world: `state.qpos` is (N, nq).

    An array is gathered at its first access after a step; the array of a single world is a view.

    Args:
        data: every world's `mujoco.MjData`.
    """

    def __init__(self, data: Sequence[Any]):
        self._data = data
        self._views: dict[str, list[np.ndarray]] = {}
        self._which: Sequence[int] = range(len(data))

    def choose(self, which: Sequence[int]) -> None:
        """Chooses the worlds whose rows are gathered, and drops the arrays gathered before."""
        if len(which) > 1 or which != self._which:
            self._which = which
            for name in self._views:
                self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._views:
            self._views[name] = [getattr(data, name)[None] for data in self._data]
        chosen = [self._views[name][index] for index in self._which]
        rows = self.__dict__[name] = chosen[0] if len(chosen) == 1 else np.concatenate(chosen)
        return rows
