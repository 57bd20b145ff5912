"""Writes the logs as CSV files. When a run is resumed, `train.csv` and `eval.csv` are cut back."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from files.reading import read_text
from files.writing import append_file, sync, truncate, write_text
from sinks.sink import GROUPS, Row, Sink, column
from utils import UserError, one_line, require_count

UNREADABLE = (OSError, UnicodeDecodeError, csv.Error)


class CsvSink(Sink):
    """Writes `train.csv` and `eval.csv`. If a new column appears later, rewrites the file, with blanks in old rows."""

    COLUMNS: ClassVar = {
        "train": [
            *("episode", "step", "episode_reward", "episode_length", "duration", "steps_per_second", "batch_reward"),
            *("actor_loss", "actor_target_entropy", "actor_entropy", "critic_loss", "alpha_loss", "alpha_value"),
        ],
        "eval": [
            *("episode", "step", "episode_reward", "episode_reward_std", "episode_reward_min"),
            *("episode_reward_max", "episode_length", "episode_length_std", "episode_length_min", "episode_length_max"),
        ],
    }

    def __init__(self, log_dir: Path):
        self._paths = {group: log_dir / f"{group}.csv" for group in GROUPS}
        self._columns: dict[str, list[str]] = {}

    def _columns_of(self, group: str) -> list[str]:
        """Returns the columns of a file. An existing file may be damaged, so it is not read before it is needed."""
        if group not in self._columns:
            path = self._paths[group]
            try:
                self._columns[group] = _header(read_text(path)) if path.exists() else list(self.COLUMNS[group])
            except UNREADABLE as error:
                raise UserError(f"{path}: cannot be read ({one_line(error)})") from None
        return self._columns[group]

    def dump(self, group: str, row: Row, step: int) -> None:
        values = {column(key): value for key, value in row.items()} | {"step": step}
        columns, path = self._columns_of(group), self._paths[group]
        new_columns = [name for name in values if name not in columns]
        columns += new_columns
        if new_columns and path.exists():
            rows = list(csv.DictReader(io.StringIO(read_text(path), newline="")))
            write_text(path, _table(columns, rows, with_header=True))
        text = _table(columns, [values], with_header=not path.exists())
        # The file is opened for each row, so that nothing is lost if the process is killed.
        with append_file(path) as file:
            file.write(text.encode())

    def state_dict(self) -> dict[str, Any]:
        """Returns each file's columns and length in bytes."""
        sizes = {}
        for group, path in self._paths.items():
            if path.exists():
                sync(path)
            sizes[group] = path.stat().st_size if path.exists() else 0
        return {"columns": {group: list(self._columns_of(group)) for group in self._paths}, "bytes": sizes}

    def lost(self, state: dict[str, Any]) -> dict[Path, str]:
        faults = {path: _fault(path, *_saved_end(state, group)) for group, path in self._paths.items()}
        return {path: fault for path, fault in faults.items() if fault}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Cuts the files back; a missing file is restarted. Raises UserError for a damaged one before cutting any."""
        for path, fault in self.lost(state).items():
            if path.exists():
                raise UserError(f"{path}: {fault}")
        for group, path in self._paths.items():
            columns, size = _saved_end(state, group)
            if size and path.exists():
                text = read_text(path)
                narrowed = _narrowed(text, columns)
                if narrowed != text:
                    write_text(path, narrowed)
                truncate(path, size)
            elif path.exists():
                path.unlink()
            self._columns[group] = columns


def _saved_end(state: dict[str, Any], group: str) -> tuple[list[str], int]:
    """Returns the columns of a file and its length in bytes, as saved in a state."""
    return list(state["columns"][group]), require_count(state["bytes"][group], "bytes")


def _fault(path: Path, columns: list[str], size: int) -> str | None:
    """Returns what is wrong with a file that had these columns and this length; None if it has only grown since."""
    if not size:
        return None
    if not path.exists():
        return f"missing, where its checkpoint left {size} bytes"
    try:
        data = _narrowed(read_text(path), columns).encode()
        if len(data) < size:
            return f"{len(data)} bytes, where its checkpoint left {size}"
        rows = data[:size].decode()
        return None if _header(rows) == columns and rows.endswith("\n") else "not what its checkpoint left"
    except UNREADABLE as error:
        return f"cannot be read ({one_line(error)})"


def _table(columns: list[str], rows: Sequence[Mapping[str, Any]], with_header: bool) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    if with_header:
        writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _header(text: str) -> list[str]:
    return next(csv.reader(io.StringIO(text, newline="")), [])


def _narrowed(text: str, columns: list[str]) -> str:
    """Removes a table's columns that were added after `columns`, so that its earlier rows are as before."""
    if len(_header(text)) <= len(columns):
        return text
    buffer = io.StringIO()
    rows = csv.reader(io.StringIO(text, newline=""))
    csv.writer(buffer, lineterminator="\n").writerows(row[: len(columns)] for row in rows)
    return buffer.getvalue()
