"""Keeps finished runs in a committed CSV file, so that a study can continue on any machine."""

import csv
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training import Curve


def digest(settings: Any) -> str:
    """Returns an eight-character hash of settings that JSON can hold."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


class Records:
    """A CSV file of runs, one line per evaluation.

    Args:
        path: the file; it need not exist.
        names: the columns that identify a run; step, return and seconds follow them.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, tuple(names)

    def add(self, key: Sequence[object], run: Curve) -> None:
        """Appends a finished run; `key` has the values of the identifying columns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not self.path.exists()
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if is_new:
                writer.writerow((*self.names, "step", "return", "seconds"))
            for step, value, seconds in zip(run.steps, run.returns, run.seconds, strict=True):
                writer.writerow((*key, int(step), round(value, 2), round(seconds, 1)))

    def read(self) -> dict[tuple[str, ...], Curve]:
        """Returns all runs in the file, by the values of their identifying columns."""
        runs: dict[tuple[str, ...], Curve] = {}
        if self.path.exists():
            with self.path.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    run = runs.setdefault(tuple(row[name] for name in self.names), Curve([], [], []))
                    for values, column in zip(run, ("step", "seconds", "return"), strict=True):
                        values.append(float(row[column]))
        return runs
