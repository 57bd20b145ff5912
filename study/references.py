"""Published results to compare with."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent / "published"  # sources: benchmarks/references/README.md
SUITE, PIXELS = FOLDER / "suite.csv", FOLDER / "pixels.csv"  # from state, from pixels


@dataclass(frozen=True)
class Reference:
    """A published curve on one task: mean returns over `num_seeds` seeds at rising environment steps."""

    label: str
    steps: tuple[float, ...]
    returns: tuple[float, ...]
    num_seeds: int

    def at(self, step: float) -> float:
        """Interpolates the return linearly at a step; NaN before the first and after the last published step."""
        return float(np.interp(step, self.steps, self.returns, left=np.nan, right=np.nan))

    def until(self, last_step: float) -> "Reference":
        """Returns the curve up to a step, to be drawn beside curves that end there."""
        steps = [step for step in self.steps if step < last_step]
        steps += [last_step] if self.steps[0] <= last_step <= self.steps[-1] else []
        return Reference(self.label, tuple(steps), tuple(map(self.at, steps)), self.num_seeds)


@cache
def published(path: Path) -> dict[str, list[Reference]]:
    """Reads SUITE or PIXELS: references by task, methods in the order of the file."""
    rows: dict[tuple[str, str], list[dict[str, str]]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows.setdefault((row["method"], row["task"]), []).append(row)
    references: dict[str, list[Reference]] = {}
    for (method, task), points in rows.items():
        steps, returns = (tuple(float(point[name]) for point in points) for name in ("step", "return"))
        curve = Reference(f"published: {method}", steps, returns, int(points[0]["seeds"]))
        references.setdefault(task, []).append(curve)
    return references
