"""How a replay buffer draws rows that are not equally likely: by priority, or less likely with age.

`replay_buffer.sampling` names one of these classes. Rows are counted from the first ever added; a row's place in the
ring is its number modulo the capacity.
"""

from typing import Any

import numpy as np
import torch

from replay.sum_tree import SumTree
from settings.types import NonNegativeFloat, PositiveInt, UnitInterval
from settings.validated import Validated
from utils import UserError, require_count


class Prioritised(Validated):
    """Draws rows in proportion to a power of their last TD error; a row that was never drawn has the largest so far.

    With floor=0: P(i) is proportional to (|TD error| + 1e-6)^alpha, and losses are weighed by (N P(i))^-beta over the
    largest weight in the batch (arXiv 1511.05952). With a floor above 0: P(i) is proportional to max(|TD error|,
    floor)^alpha and nothing is weighed, which a Huber loss of that width makes up for (LAP, arXiv 2007.06049).

    Args:
        capacity: of the buffer.
        alpha: 0 draws uniformly.
        beta: how much of the bias the weights correct, at first.
        beta_rows: rows added until beta has risen, on a straight line, to 1.
        floor: least TD error.
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
        """Returns places (B,) of rows, and weights (B,).

        Args:
            rng: draws the rows, one from each of B equal parts of the sum of all priorities.
            num_added: rows so far.
            length: how many of them, the newest, can be drawn.
            batch_size: B.
        """
        self._follow(num_added, length)
        places = self._tree.find((np.arange(batch_size) + rng.random(batch_size)) * (self._tree.total / batch_size))
        if self._floor:
            return places, np.ones(batch_size)
        beta = min(1.0, self._beta + (1 - self._beta) * num_added / self._beta_rows)
        weights = self._tree.values[places] ** -beta  # (N P)^-beta, but for a factor that the division takes out
        return places, weights / weights.max()

    def update_priorities(self, index: torch.Tensor, priorities: torch.Tensor) -> None:
        """Sets priorities of rows that were drawn.

        Args:
            index: their places, (B,).
            priorities: their absolute TD errors, (B,).
        """
        values = self._power(priorities.cpu().double().numpy())
        self._tree.put(index.cpu().numpy(), values)
        self._largest = max(self._largest, values.max())

    def _power(self, errors: np.ndarray) -> np.ndarray:
        return (np.maximum(errors, self._floor) if self._floor else errors + 1e-6) ** self._alpha

    def _follow(self, num_added: int, length: int) -> None:
        """Gives the rows that were added since the last batch the largest priority, and those that left none."""
        oldest = num_added - length
        # The places of rows that have left without being overwritten, as in a buffer of images.
        left = np.arange(max(self._oldest, num_added - self._capacity), oldest)
        self._tree.put(left % self._capacity, 0.0)
        self._tree.put(np.arange(max(self._newest, oldest), num_added) % self._capacity, self._largest)
        self._oldest, self._newest = oldest, num_added

    def state_dict(self) -> dict[str, Any]:
        used = self._tree.values[: min(self._newest, self._capacity)]
        counts = {"oldest": self._oldest, "newest": self._newest}
        return counts | {"largest": float(self._largest), "priorities": torch.tensor(used)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned.

        Raises:
            ValueError: for priorities that no run has saved.
        """
        oldest, newest = (require_count(state[key], key) for key in ("oldest", "newest"))
        largest, saved = float(state["largest"]), state["priorities"].cpu().numpy()
        if saved.shape != (min(newest, self._capacity),) or saved.dtype != np.float64 or oldest > newest:
            raise ValueError(f"{saved.shape} priorities of {saved.dtype} for rows {oldest} to {newest}")
        if not (np.isfinite(largest) and np.isfinite(saved).all() and (saved >= 0).all()):
            raise ValueError("a priority is negative or not finite")
        self._oldest, self._newest, self._largest = oldest, newest, largest
        self._tree.put(np.arange(len(saved)), saved)


class Fading(Validated):
    """Draws rows less often the older they are: P(row) is proportional to max(floor, decay^age), age in rows.

    Experience replay decay, of FoG (arXiv 2507.02712); DR.Q has it with the same two numbers.

    Args:
        capacity: of the buffer.
        decay: below 1.
        floor: above 0; the least probability, of the newest row's.
    """

    def __init__(self, capacity: PositiveInt, decay: UnitInterval = 0.9999, floor: UnitInterval = 0.1):
        if not 0 < decay < 1:
            raise UserError(f"replay_buffer.sampling.decay={decay}: above 0 and below 1 is needed")
        if not floor:
            raise UserError(f"replay_buffer.sampling.floor={floor}: above 0 is needed")
        self._capacity, self._decay, self._floor = capacity, decay, floor
        self._fading_rows = int(np.ceil(np.log(floor) / np.log(decay)))  # younger rows are above the floor

    def choose(self, rng: np.random.Generator, num_added: int, length: int, batch_size: int) -> Any:
        """Returns places (B,) of rows, drawn by inverting the distribution's sum; for the arguments see Prioritised."""
        fading = min(self._fading_rows, length)
        young = (1 - self._decay**fading) / (1 - self._decay)  # 1 + decay + … of the fading rows
        points = rng.random(batch_size) * (young + self._floor * (length - fading))
        # Age k covers (1 - decay^k) / (1 - decay) up to that of k + 1; then each age covers `floor`.
        ages = np.log1p(-np.minimum(points, young) * (1 - self._decay)) / np.log(self._decay)
        ages = np.where(points < young, np.minimum(ages, fading - 1), fading + (points - young) / self._floor)
        ages = np.minimum(ages.astype(int), length - 1)
        return (num_added - 1 - ages) % self._capacity, None
