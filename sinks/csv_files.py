"""Writes the logs as CSV files. When a run is resumed, `train.csv` and `eval.csv` are cut back."""

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from sinks.sink import GROUPS, Row, Sink, to_column
from utils import replacing, sync, write_atomic

COLUMNS = {
    "train": [
        *("episode", "step", "episode_reward", "episode_length", "duration", "steps_per_second", "batch_reward"),
        *("actor_loss", "actor_target_entropy", "actor_entropy", "critic_loss", "alpha_loss", "alpha_value"),
    ],
    "eval": [
        *("episode", "step", "episode_reward", "episode_reward_std", "episode_reward_min", "episode_reward_max"),
        *("episode_length", "episode_length_std", "episode_length_min", "episode_length_max"),
    ],
}


class CsvSink(Sink):
    """Writes `train.csv` and `eval.csv`. If a new column appears later, rewrites the file, with blanks in old rows."""

    def __init__(self, log_dir: Path):
        self._paths = {group: log_dir / f"{group}.csv" for group in GROUPS}
        self._columns: dict[str, list[str]] = {}

    def dump(self, group: str, row: Row, step: int) -> None:
        values = {to_column(key): value for key, value in row.items()} | {"step": step}
        path = self._paths[group]
        if group not in self._columns:
            self._columns[group] = next(_read(path), COLUMNS[group])
        columns = self._columns[group]
        if new_columns := [name for name in values if name not in columns]:
            columns = self._columns[group] = [*columns, *new_columns]
            blanks = [""] * len(new_columns)
            with replacing(path) as partial:
                _write(partial, "w", columns, *([*cells, *blanks] for cells in islice(_read(path), 1, None)))
        elif not path.exists() or not path.stat().st_size:
            _write(path, "w", columns)
        # The file is opened for each row, so that nothing is lost if the process is killed.
        _write(path, "a", [str(values.get(name, "")) for name in columns])

    def state_dict(self) -> dict[str, Any]:
        paths = {group: path for group, path in self._paths.items() if path.exists()}
        for path in paths.values():
            sync(path)
        return {"lines": {group: path.read_bytes().count(b"\n") for group, path in paths.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for group, path in self._paths.items():
            if path.exists():
                lines = path.read_bytes().splitlines(keepends=True)
                write_atomic(path, b"".join(lines[: state["lines"].get(group, 0)]))
        self._columns.clear()


def _read(path: Path) -> Iterator[list[str]]:
    """Yields the cells of a file's rows, the header first; nothing if there is no file."""
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            yield from csv.reader(file)


def _write(path: Path, mode: str, *rows: list[str]) -> None:
    with path.open(mode, encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
