"""Prints the logs on the console."""

import sys
from typing import ClassVar

from termcolor import colored
from tqdm import tqdm

from sinks.sink import Row, Sink, column


class ConsoleSink(Sink):
    """Prints one line per dump above the progress bar, without columns that were not logged since the last dump."""

    COLUMNS: ClassVar = {
        "train": (
            ("episode", "E", "{:d}"),
            ("step", "S", "{:d}"),
            ("episode_reward", "R", "{:.4f}"),
            ("duration", "D", "{:.1f} s"),
            ("batch_reward", "BR", "{:.4f}"),
            ("actor_loss", "ALOSS", "{:.4f}"),
            ("critic_loss", "CLOSS", "{:.4f}"),
            ("alpha_loss", "TLOSS", "{:.4f}"),
            ("alpha_value", "TVAL", "{:.4f}"),
            ("actor_entropy", "AENT", "{:.4f}"),
        ),
        "eval": (
            ("episode", "E", "{:d}"),
            ("step", "S", "{:d}"),
            ("episode_reward", "R", "{:.4f}"),
            ("episode_reward_std", "STD", "{:.4f}"),
        ),
    }
    COLORS: ClassVar = {"train": "yellow", "eval": "green"}

    def dump(self, group: str, row: Row, step: int) -> None:
        values = {column(key): value for key, value in row.items()} | {"step": step}
        fields = [
            f"{label}: {form.format(values[name])}" for name, label, form in self.COLUMNS[group] if name in values
        ]
        tqdm.write(f"| {colored(f'{group:5}', self.COLORS[group])} | " + " | ".join(fields))
        sys.stdout.flush()
