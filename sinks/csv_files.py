"""The logs as CSV files, `train.csv` and `eval.csv`, which are cut back where a run is resumed."""

import csv
import io
import os
from pathlib import Path
from typing import Any, ClassVar

from sinks.sink import GROUPS, Row, Sink, column
from utils import UserError, one_line, require_count, sync, write_atomically


class CsvSink(Sink):
    """`train.csv` and `eval.csv`. A column that comes later widens the file; earlier rows leave it blank."""

    COLUMNS: ClassVar = {
        "train": [
            *("episode", "step", "episode_reward", "episode_length", "duration", "steps_per_second"),
            *(
                "batch_reward",
                "actor_loss",
                "actor_target_entropy",
                "actor_entropy",
                "critic_loss",
                "alpha_loss",
                "alpha_value",
            ),
        ],
        "eval": [
            *("episode", "step", "episode_reward", "episode_reward_std", "episode_reward_min"),
            *("episode_reward_max", "episode_length", "episode_length_std", "episode_length_min", "episode_length_max"),
        ],
    }

    def __init__(self, log_dir: Path):
        self._paths = {group: log_dir / f"{group}.csv" for group in GROUPS}
        self._columns = {group: list(columns) for group, columns in self.COLUMNS.items()}
        for group, path in self._paths.items():
            if path.exists():
                self._columns[group] = _rows(path)[0]

    def dump(self, group: str, row: Row, step: int) -> None:
        values = {column(key): value for key, value in row.items()} | {"step": step}
        columns = self._columns[group]
        new = [name for name in values if name not in columns]
        columns += new
        path = self._paths[group]
        if new and path.exists():
            self._widen(path, columns)
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
        if not path.exists():
            writer.writeheader()
        writer.writerow(values)
        with path.open("a", newline="") as file:  # opened for each row: nothing is lost when the process is killed
            file.write(buffer.getvalue())

    @staticmethod
    def _widen(path: Path, columns: list[str]) -> None:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
        writer.writeheader()
        with path.open(newline="") as file:
            writer.writerows(csv.DictReader(file))
        write_atomically(path, buffer.getvalue())

    def state_dict(self) -> dict[str, Any]:
        """Each file's columns and length in bytes."""
        sizes = {}
        for group, path in self._paths.items():
            if path.exists():
                sync(path)
            sizes[group] = path.stat().st_size if path.exists() else 0
        return {"columns": {group: list(names) for group, names in self._columns.items()}, "bytes": sizes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for group, path in self._paths.items():
            columns, size = list(state["columns"][group]), require_count(state["bytes"][group], "bytes")
            if path.exists():
                if len(self._columns[group]) > len(columns) and size:  # widened since
                    self._narrow(path, columns)
                if path.stat().st_size < size:
                    raise UserError(f"{path}: {path.stat().st_size} bytes, where its checkpoint left {size}")
                os.truncate(path, size)
                if not size:
                    path.unlink()
            elif size:
                raise UserError(f"{path}: missing, where its checkpoint left {size} bytes")
            self._columns[group] = columns

    @staticmethod
    def _narrow(path: Path, columns: list[str]) -> None:
        """Takes the newest columns away again: the earlier rows become what they were."""
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(row[: len(columns)] for row in _rows(path))
        write_atomically(path, buffer.getvalue())


def _rows(path: Path) -> list[list[str]]:
    """A log's rows, the first its columns' names.

    Raises:
        UserError: for a file that is no such table.
    """
    try:
        with path.open(newline="") as file:
            return list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error)})") from None
