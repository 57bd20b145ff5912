"""Prints the logs on the console, as a table."""

import shutil
import sys
import time
from pathlib import Path

from termcolor import colored
from tqdm import tqdm

from sinks.sink import Row, Sink, to_column

HEADER_EVERY = 20  # rows; so one is always visible in a terminal of 24 lines
ROW_EVERY_S = 1.0  # so that short episodes do not fill the terminal
ALWAYS = {"episode": 7, "step": 8, "episode_reward": 8}  # column -> width
LABELS = {"episode_reward": "return", "alpha_value": "temperature", "duration": "seconds"}
COLUMNS = ("critic_loss", "actor_loss", "alpha_value", "actor_entropy", "duration")
COLORS = {"train": "yellow", "eval": "green"}


class ConsoleSink(Sink):
    """Prints every evaluation, and at most one training episode per second, above the progress bar.

    A column is shown from its first value on. In a terminal that is too narrow, the last columns are left out.

    Args:
        columns: columns after episode, step and return, named as in train.csv and eval.csv.
    """

    def __init__(self, log_dir: Path, columns: list[str] | tuple[str, ...] = COLUMNS):
        self._columns = [name for name in columns if name not in ALWAYS]
        self._logged: set[str] = set()
        self._header: list[str] = []
        self._rows_since_header = 0
        self._next_row_s = 0.0

    def dump(self, group: str, row: Row, step: int) -> None:
        if group == "train":
            if time.monotonic() < self._next_row_s:
                return
            self._next_row_s = time.monotonic() + ROW_EVERY_S
        values = {to_column(key): value for key, value in row.items()} | {"step": step}
        self._logged |= values.keys()
        widths = self._widths()
        header = [_label(name).rjust(width) for name, width in widths.items()]
        if header != self._header or self._rows_since_header >= HEADER_EVERY:
            self._header, self._rows_since_header = header, 0
            _write(" " * len("train"), header)
        cells = [(_text(values[name]) if name in values else "").rjust(width) for name, width in widths.items()]
        if "episode_reward_std" in values and "".join(cells[len(ALWAYS) :]).isspace():  # there is room for its spread
            cells[len(ALWAYS)] = f"± {_text(values['episode_reward_std'])}"
        _write(colored(f"{group:5}", COLORS[group]), cells)
        self._rows_since_header += 1

    def _widths(self) -> dict[str, int]:
        """Returns the columns that are shown now, with their widths."""
        widths = ALWAYS | {name: max(8, len(_label(name))) for name in self._columns if name in self._logged}
        room = shutil.get_terminal_size().columns - len("| train") if sys.stdout.isatty() else sys.maxsize
        while len(widths) > len(ALWAYS) and sum(width + len(" | ") for width in widths.values()) > room:
            widths.popitem()
        return widths


def _write(group: str, cells: list[str]) -> None:
    tqdm.write(f"| {' | '.join([group, *cells])}".rstrip(" |"))
    sys.stdout.flush()


def _label(name: str) -> str:
    return LABELS.get(name, name.replace("_", " "))


def _text(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if abs(value) >= 100:
        return f"{value:.1f}"
    return f"{value:#.4g}" if abs(value) >= 0.001 or not value else f"{value:.2g}"
