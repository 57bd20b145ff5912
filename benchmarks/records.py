"""Finished runs as lines of a CSV file that is committed: a study goes on wherever it is called again."""

import csv
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training import Curve


def digest(settings: Any) -> str:
    """Eight letters that change with the settings, anything that JSON can hold."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


class Records:
    """Runs by what names them, a line for each evaluation.

    Args:
        path: the file; it need not be there.
        names: the columns that say which run it is; behind them come step, return and seconds.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, tuple(names)

    def add(self, key: Sequence[object], found: Curve) -> None:
        """Appends a finished run."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not self.path.exists()
        with self.path.open("a", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, lineterminator="\n")
            if is_new:
                lines.writerow((*self.names, "step", "return", "seconds"))
            for step, value, seconds in zip(found.steps, found.returns, found.seconds, strict=True):
                lines.writerow((*key, int(step), round(value, 2), round(seconds, 1)))

    def read(self) -> dict[tuple[str, ...], Curve]:
        """Every run that is there, by its names."""
        found: dict[tuple[str, ...], Curve] = {}
        if self.path.exists():
            with self.path.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    run = found.setdefault(tuple(row[name] for name in self.names), Curve([], [], []))
                    for values, column in zip(run, ("step", "seconds", "return"), strict=True):
                        values.append(float(row[column]))
        return found
