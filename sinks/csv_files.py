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
        self._known: dict[str, list[str]] = {}

    def _columns(self, group: str) -> list[str]:
        """A file's columns. A file that is there is read when they are first needed: it may be damaged."""
        if group not in self._known:
            path = self._paths[group]
            try:
                self._known[group] = _header(_text(path)) if path.exists() else list(self.COLUMNS[group])
            except UNREADABLE as error:
                raise UserError(f"{path}: cannot be read ({one_line(error)})") from None
        return self._known[group]

    def dump(self, group: str, row: Row, step: int) -> None:
        values = {column(key): value for key, value in row.items()} | {"step": step}
        columns = self._columns(group)
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
        # Opened for each row: nothing is lost when the process is killed.
        with path.open("a", newline="", encoding="utf-8") as file:
            file.write(buffer.getvalue())

    @staticmethod
    def _widen(path: Path, columns: list[str]) -> None:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
        writer.writeheader()
        with path.open(newline="", encoding="utf-8") as file:
            writer.writerows(csv.DictReader(file))
        write_atomically(path, buffer.getvalue())

    def state_dict(self) -> dict[str, Any]:
        """Each file's columns and length in bytes."""
        sizes = {}
        for group, path in self._paths.items():
            if path.exists():
                sync(path)
            sizes[group] = path.stat().st_size if path.exists() else 0
        return {"columns": {group: list(self._columns(group)) for group in self._paths}, "bytes": sizes}

    def lost(self, state: dict[str, Any]) -> dict[Path, str]:
        ends = {path: _end(state, group) for group, path in self._paths.items()}
        faults = {path: _fault(path, columns, size) for path, (columns, size) in ends.items()}
        return {path: fault for path, fault in faults.items() if fault}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Cuts the files back; one that is gone begins anew.

        Raises:
            UserError: for one that is damaged; then no file is cut.
        """
        for path, fault in self.lost(state).items():
            if path.exists():
                raise UserError(f"{path}: {fault}")
        for group, path in self._paths.items():
            columns, size = _end(state, group)
            if size and path.exists():
                text = _text(path)
                narrowed = _narrowed(text, columns)
                if narrowed != text:
                    write_atomically(path, narrowed)
                os.truncate(path, size)
            elif path.exists():
                path.unlink()
            self._known[group] = columns


UNREADABLE = (OSError, UnicodeDecodeError, csv.Error)


def _end(state: dict[str, Any], group: str) -> tuple[list[str], int]:
    """A file's columns and length in bytes when the state was taken."""
    return list(state["columns"][group]), require_count(state["bytes"][group], "bytes")


def _fault(path: Path, columns: list[str], size: int) -> str | None:
    """What is wrong with a file that once had these columns and this length; None if it has only grown since."""
    if not size:
        return None
    if not path.exists():
        return f"missing, where its checkpoint left {size} bytes"
    try:
        data = _narrowed(_text(path), columns).encode()
        if len(data) < size:
            return f"{len(data)} bytes, where its checkpoint left {size}"
        rows = data[:size].decode()
        return None if _header(rows) == columns and rows.endswith("\n") else "not what its checkpoint left"
    except UNREADABLE as error:
        return f"cannot be read ({one_line(error)})"


def _text(path: Path) -> str:
    with path.open(newline="", encoding="utf-8") as file:
        return file.read()


def _header(text: str) -> list[str]:
    return next(csv.reader(io.StringIO(text, newline="")), [])


def _narrowed(text: str, columns: list[str]) -> str:
    """A table without the columns that came after these: its earlier rows become what they were."""
    if len(_header(text)) <= len(columns):
        return text
    buffer = io.StringIO()
    rows = csv.reader(io.StringIO(text, newline=""))
    csv.writer(buffer, lineterminator="\n").writerows(row[: len(columns)] for row in rows)
    return buffer.getvalue()
