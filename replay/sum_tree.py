"""A tree of sums, for drawing places in proportion to their values."""

import numpy as np

FAN_OUT = 16  # children of a node; from 8 to 32 a draw takes about the same time


class SumTree:
    """Stores values, the sums of FAN_OUT neighbours, the sums of FAN_OUT such sums, and so on; at most FAN_OUT on top.

    A sum is always computed from its whole group, so it depends only on the current values, not on past updates.

    Args:
        size: number of values; all are 0 initially.
    """

    def __init__(self, size: int):
        self._levels = [_zeros(size)]  # values, sums, …; each padded to whole groups: (groups, FAN_OUT)
        while len(self._levels[-1]) > 1:
            self._levels.append(_zeros(len(self._levels[-1])))
        self.values = self._levels[0].reshape(-1)[:size]

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self._levels[-1].sum())

    def put(self, places: np.ndarray, values: np.ndarray | float) -> None:
        """Sets values, finite and at least 0, at places (N,); if a place occurs twice, its last value is kept."""
        self.values[places] = values
        for level, above in zip(self._levels, self._levels[1:], strict=False):
            places = places // FAN_OUT
            above.reshape(-1)[places] = level[places].sum(axis=1)

    def find(self, points: np.ndarray) -> np.ndarray:
        """Returns the places (N,) whose intervals contain points (N,) in [0, total), with values laid end to end."""
        places, rest = np.zeros(len(points), np.intp), points.astype(float)
        starts = FAN_OUT * np.arange(len(points))
        for level in reversed(self._levels):
            sums = level[places].cumsum(axis=1)  # (N, FAN_OUT)
            rest = np.minimum(rest, np.nextafter(sums[:, -1], 0.0))  # rounding must not lead to a value of 0
            child = (sums <= rest[:, None]).sum(axis=1)
            rest -= sums.reshape(-1)[starts + child - 1] * (child > 0)
            places = places * FAN_OUT + child
        return places


def _zeros(size: int) -> np.ndarray:
    return np.zeros((-(-size // FAN_OUT), FAN_OUT))
