"""How a replay buffer draws rows that are not equally likely: by priority, or less likely with age.

`replay_buffer.sampling` names one of these classes. Rows are counted from the first ever added; a row's place in the
ring is its number modulo the capacity.
"""

from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Gt, Lt

from settings.types import NonNegativeFloat, PositiveInt, UnitInterval

Fraction = Annotated[float, Gt(0), Lt(1)]
FAN_OUT = 16  # children of a node; from 8 to 32 a draw takes about the same time


class SumTree:
    """Stores values, the sums of FAN_OUT neighbours, the sums of FAN_OUT such sums, and so on; at most FAN_OUT on top.

    A sum is always computed from its whole group, so it depends only on the current values, not on past updates.
    """

    def __init__(self, size: int):
        self._levels: list[np.ndarray] = []  # values, sums, …; each padded to whole groups: (groups, FAN_OUT)
        groups = size
        while not self._levels or groups > 1:
            groups = -(-groups // FAN_OUT)
            self._levels.append(np.zeros((groups, FAN_OUT)))
        self.values = self._levels[0].reshape(-1)[:size]

    @property
    def total(self) -> float:
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


class Prioritised:
    """Draws rows in proportion to a power of their last TD error; undrawn rows get the largest priority so far.

    With floor=0: P(i) is proportional to (|TD error| + 1e-6)^alpha, and losses are weighted by (N P(i))^-beta, divided
    by the largest weight in the batch (arXiv 1511.05952). With a floor above 0: P(i) is proportional to max(|TD error|,
    floor)^alpha and all weights are 1; a Huber loss of that width compensates for it (LAP, arXiv 2007.06049). While
    `beta_rows` rows are added, beta rises linearly to 1.
    """

    def __init__(
        self,
        capacity: PositiveInt,
        alpha: UnitInterval = 0.6,
        beta: UnitInterval = 0.4,
        beta_rows: PositiveInt = 1_000_000,
        floor: NonNegativeFloat = 0.0,
    ):
        self._capacity = capacity
        self._alpha, self._beta, self._beta_rows, self._floor = alpha, beta, beta_rows, floor
        self._tree = SumTree(capacity)
        self._largest = self._power(np.ones(1))[0]
        self._oldest = self._newest = 0  # rows [oldest, newest) have their priorities in the tree

    def choose(self, rng: np.random.Generator, num_added: int, length: int, batch_size: int) -> Any:
        """Draws from the newest `length` rows, one from each of B equal parts of the sum of all priorities.

        Returns:
            Their places (B,) in the ring, and their weights (B,).
        """
        self._follow(num_added, length)
        places = self._tree.find((np.arange(batch_size) + rng.random(batch_size)) * (self._tree.total / batch_size))
        if self._floor:
            return places, np.ones(batch_size)
        beta = min(1.0, self._beta + (1 - self._beta) * num_added / self._beta_rows)
        weights = self._tree.values[places] ** -beta  # (N P)^-beta up to a factor, which cancels in the division below
        return places, weights / weights.max()

    def update_priorities(self, index: torch.Tensor, priorities: torch.Tensor) -> None:
        """Sets the priorities of rows that were drawn: places in the ring and absolute TD errors, (B,) each."""
        values = self._power(priorities.cpu().double().numpy())
        self._tree.put(index.cpu().numpy(), values)
        self._largest = max(self._largest, values.max())

    def _power(self, errors: np.ndarray) -> np.ndarray:
        return (np.maximum(errors, self._floor) if self._floor else errors + 1e-6) ** self._alpha

    def _follow(self, num_added: int, length: int) -> None:
        """Sets the priority of rows added since the last batch to the largest so far, and of removed rows to 0."""
        oldest = num_added - length
        # Rows that can no longer be drawn although they are not overwritten, as in a buffer of images.
        left = np.arange(max(self._oldest, num_added - self._capacity), oldest)
        self._tree.put(left % self._capacity, 0.0)
        self._tree.put(np.arange(max(self._newest, oldest), num_added) % self._capacity, self._largest)
        self._oldest, self._newest = oldest, num_added

    def state_dict(self) -> dict[str, Any]:
        used = self._tree.values[: min(self._newest, self._capacity)]
        counts = {"oldest": self._oldest, "newest": self._newest}
        return counts | {"largest": float(self._largest), "priorities": torch.tensor(used)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._oldest, self._newest, self._largest = state["oldest"], state["newest"], state["largest"]
        saved = state["priorities"].cpu().numpy()
        self._tree.put(np.arange(len(saved)), saved)


class Fading:
    """Draws rows less often the older they are: P(row) is proportional to max(floor, decay^age), age in rows.

    This is FoG's experience replay decay (arXiv 2507.02712); DR.Q uses it with the same two numbers.

    Args:
        capacity: the buffer's capacity.
        floor: the smallest probability, as a fraction of the newest row's.
    """

    def __init__(self, capacity: PositiveInt, decay: Fraction = 0.9999, floor: Fraction = 0.1):
        self._capacity, self._decay, self._floor = capacity, decay, floor
        self._fading_rows = int(np.ceil(np.log(floor) / np.log(decay)))  # younger rows are above the floor

    def choose(self, rng: np.random.Generator, num_added: int, length: int, batch_size: int) -> Any:
        """Returns places (B,) of rows, drawn by inverting the cumulative distribution; arguments: see Prioritised."""
        fading = min(self._fading_rows, length)
        young = (1 - self._decay**fading) / (1 - self._decay)  # 1 + decay + … of the fading rows
        points = rng.random(batch_size) * (young + self._floor * (length - fading))
        # Age k covers S(k) to S(k + 1) with S(k) = (1 - decay^k) / (1 - decay); from `fading` on, `floor` each.
        ages = np.log1p(-np.minimum(points, young) * (1 - self._decay)) / np.log(self._decay)
        ages = np.where(points < young, np.minimum(ages, fading - 1), fading + (points - young) / self._floor)
        ages = np.minimum(ages.astype(int), length - 1)
        return (num_added - 1 - ages) % self._capacity, None
