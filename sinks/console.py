"""Prints the logs on the console, as a table."""

import shutil
import sys
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator
from termcolor import colored
from tqdm import tqdm

from files.output import is_lost
from sinks.sink import Row, Sink, column

HEADER_EVERY = 20  # rows; so one is always visible in a terminal of 24 lines


def _name(text: str) -> str:
    """Returns a column's name in the CSV files; raises ValueError for a text that cannot come from a log key."""
    if not text.strip():
        raise ValueError("the name of a column of train.csv or eval.csv goes here, such as alpha_loss")
    return column(text) if "/" in text else text


ColumnName = Annotated[str, AfterValidator(_name)]


class ConsoleSink(Sink):
    """Prints one row per dump above the progress bar, and a header every 20 rows.

    A column is shown from its first value on. In a terminal that is too narrow, the last columns are left out.

    Args:
        columns: columns after episode, step and return, named as in train.csv and eval.csv, or as TensorBoard's tags.
    """

    ALWAYS: ClassVar = {"episode": 7, "step": 8, "episode_reward": 8}  # column -> width
    LABELS: ClassVar = {
        "episode_reward": "return",
        "episode_reward_std": "std",
        "episode_length": "length",
        "alpha_value": "alpha",
        "actor_entropy": "entropy",
        "duration": "seconds",
        "steps_per_second": "steps/s",
    }
    COLUMNS: ClassVar = ("critic_loss", "actor_loss", "alpha_value", "actor_entropy", "duration")
    COLORS: ClassVar = {"train": "yellow", "eval": "green"}

    def __init__(self, log_dir: Path, columns: list[ColumnName] | tuple[ColumnName, ...] = COLUMNS):
        super().__init__(log_dir)
        self._columns = [_name(text) for text in columns if text not in self.ALWAYS]
        self._logged: set[str] = set()
        self._header: dict[str, str] = {}
        self._rows_since_header = 0

    def dump(self, group: str, row: Row, step: int) -> None:
        values = {column(key): value for key, value in row.items()} | {"step": step}
        self._logged |= values.keys()
        widths = self._widths()
        header = {name: self._label(name).rjust(width) for name, width in widths.items()}
        if header != self._header or self._rows_since_header >= HEADER_EVERY:
            self._header, self._rows_since_header = header, 0
            _write(" " * len("train"), header)
        cells = {name: _text(name, values[name]) for name in widths if name in values}
        padded = {name: cells.get(name, "").rjust(width) for name, width in widths.items()}
        after_return = next((name for name in widths if name not in self.ALWAYS), None)
        if "episode_reward_std" in values and after_return is not None and after_return not in cells:
            # An evaluation has no losses, so there is room for its spread.
            spread = f"± {_text('episode_reward_std', values['episode_reward_std'])}"
            padded[after_return] = spread.ljust(widths[after_return])
        _write(colored(f"{group:5}", self.COLORS[group]), padded)
        self._rows_since_header += 1

    def close(self) -> None:
        """Reports requested columns that were never logged."""
        missing = [name for name in self._columns if name not in self._logged and name not in self.COLUMNS]
        if missing and self._logged:
            tqdm.write(
                f"logger.sinks.console.columns={','.join(missing)}: nothing was logged by that name; "
                f"there are {', '.join(sorted(self._logged))}"
            )
            self._columns = [name for name in self._columns if name not in missing]  # a second call is silent

    def _widths(self) -> dict[str, int]:
        """Returns the columns that are shown now, with their widths."""
        shown = {name: max(7, len(self._label(name))) for name in self._columns if name in self._logged}
        widths = self.ALWAYS | shown
        if sys.stdout.isatty():
            room = shutil.get_terminal_size().columns - len("| train")
            while len(widths) > len(self.ALWAYS) and sum(width + len(" | ") for width in widths.values()) > room:
                widths.popitem()
        return widths

    def _label(self, name: str) -> str:
        return self.LABELS.get(name, name.replace("_", " "))


def _write(group: str, cells: dict[str, str]) -> None:
    """Prints a line. If the terminal has gone, or what it is piped to has ended, the run goes on without it."""
    line = f"| {' | '.join([group, *cells.values()])}".rstrip(" |")
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        tqdm.write(line.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError:
        if not is_lost():
            raise


def _text(name: str, value: float) -> str:
    """Formats a value: times and large returns with one decimal, others with four significant digits or, where they
    would not fit a column, fewer."""
    if isinstance(value, int):
        return str(value)
    if name == "duration":
        return f"{value:.1f}"
    if name == "episode_reward" and 100 <= abs(value) < 1e7:
        return f"{value:.1f}"
    if 10_000 <= abs(value) < 1e7:  # longer, but easier to read than an exponent
        return f"{value:.0f}"
    digits = 4 if abs(value) >= 0.01 or not value else 3 if abs(value) >= 0.0001 else 2
    return f"{value:#.{digits}g}".rstrip(".")
