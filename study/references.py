"""Published results to draw beside ours."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks" / "references"
SUITE, PIXELS = FOLDER / "suite.csv", FOLDER / "pixels.csv"


@dataclass(frozen=True)
class Reference:
    """A published curve of one task: mean returns over `num_seeds` seeds at rising environment steps."""

    method: str
    task: str
    steps: tuple[float, ...]
    returns: tuple[float, ...]
    num_seeds: int

    @property
    def label(self) -> str:
        return f"published: {self.method}"

    def at(self, step: float) -> float:
        """The return at a step, linear between the published ones; NaN before the first and after the last."""
        return float(np.interp(step, self.steps, self.returns, left=np.nan, right=np.nan))

    def until(self, step: float) -> "Reference":
        """The part up to a step, for the drawing beside curves that end there."""
        steps = [here for here in self.steps if here < step]
        steps += [step] if self.steps[0] <= step <= self.steps[-1] else []
        return Reference(self.method, self.task, tuple(steps), tuple(map(self.at, steps)), self.num_seeds)


@cache
def published(path: Path) -> dict[str, list[Reference]]:
    """References by task, methods in the order of the file: SUITE's see a state, PIXELS' see pixels."""
    rows: dict[tuple[str, str], list[dict[str, str]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows.setdefault((row["method"], row["task"]), []).append(row)
    references: dict[str, list[Reference]] = {}
    for (method, task), found in rows.items():
        steps, returns = (tuple(float(row[name]) for row in found) for name in ("step", "return"))
        references.setdefault(task, []).append(Reference(method, task, steps, returns, int(found[0]["seeds"])))
    return references
