"""MuJoCo's arrays of all worlds."""

from collections.abc import Sequence
from typing import Any

import numpy as np


class State:
    """The arrays of MjData, by their names there, with one row for each chosen world: `state.qpos` is (N, nq).

    An array is gathered when it is first asked for after a step; that of a single world is a view.

    Args:
        data: every world's `mujoco.MjData`.
    """

    def __init__(self, data: Sequence[Any]):
        self._data = data
        self._views: dict[str, list[np.ndarray]] = {}
        self._which: Sequence[int] = range(len(data))

    def choose(self, which: Sequence[int]) -> None:
        """Lets rows be those of these worlds, and forgets what was gathered."""
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
