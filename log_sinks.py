"""Where logs go: console, CSV, TensorBoard.

A log key is `train/...`, `train_critic/...`, `eval/...` and so on: its group, train or eval, a separator and a name.
The CSV column and the console read the name with `/` turned into `_`; TensorBoard shows the key itself.
"""

import csv
import io
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from termcolor import colored
from tqdm import tqdm

from utils import UserError, sync, write_atomically

GROUPS = ("train", "eval")
Row = dict[str, float]  # key -> averaged value; counters stay ints


def column(key: str) -> str:
    """`train_critic/loss` -> `critic_loss`, `eval/episode_reward` -> `episode_reward`."""
    group = group_of(key)
    return key[len(group) + 1 :].replace("/", "_")


def group_of(key: str) -> str:
    for group in GROUPS:
        if key.startswith((f"{group}/", f"{group}_")):
            return group
    raise ValueError(f"log key {key!r}: it has to start with train/, train_, eval/ or eval_")


class Sink:
    """Somewhere that logs go. A new one overrides what it shows, and is a line under `logger.sinks` in YAML.

    Args:
        log_dir: the run's folder.
    """

    def __init__(self, log_dir: Path):
        self.log_dir = log_dir

    def settings(self, values: dict[str, Any]) -> None:
        """The run's configuration by dotted key, once, before anything else."""

    def scalars(self, row: Row, step: int) -> None:
        """Points of curves: averaged values by key."""

    def dump(self, group: str, row: Row, step: int) -> None:
        """One row of a group, at the end of an episode or an evaluation: averaged values by key."""

    def histogram(self, key: str, values: np.ndarray, step: int) -> None:
        """Values of any number, flat."""

    def video(self, key: str, frames: np.ndarray, fps: float, step: int) -> None:
        """Frames (T, H, W, 3), uint8."""

    def close(self) -> None:
        """The run is over."""

    def state_dict(self) -> dict[str, Any]:
        """Where the log ends; what lies before that is on the disk when this returns."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where the state was taken: what was written later is cut off."""


def _is_wiring(key: str) -> bool:
    """Whether a setting says how parts are put together, or repeats another."""
    return key.startswith(("logger.", "evaluator.")) or key.rsplit(".", 1)[-1].startswith("_")


class ConsoleSink(Sink):
    """One line a dump, above the progress bar. A column not logged since the last dump is left out."""

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
        prefix = colored(f"{group:5}", self.COLORS[group])
        tqdm.write(f"| {prefix} | " + " | ".join(fields))
        sys.stdout.flush()


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
            *("episode_reward_max", "episode_length"),
        ],
    }

    def __init__(self, log_dir: Path):
        self._paths = {group: log_dir / f"{group}.csv" for group in GROUPS}
        self._columns = {group: list(columns) for group, columns in self.COLUMNS.items()}
        for group, path in self._paths.items():
            if path.exists():
                with path.open(newline="") as file:
                    self._columns[group] = next(csv.reader(file))

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
            columns, size = list(state["columns"][group]), state["bytes"][group]
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
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(row[: len(columns)] for row in rows)
        write_atomically(path, buffer.getvalue())


class TensorBoardSink(Sink):
    """Event files under `tb/`; the settings are what its HParams page sets against the last of each curve."""

    def __init__(self, log_dir: Path):
        from torch.utils.tensorboard import SummaryWriter  # half a second: only where it is wanted

        self._folder = log_dir / "tb"
        self._folder.mkdir(exist_ok=True)
        self._earlier = self._files()  # of processes that wrote here before
        self._writer = SummaryWriter(str(self._folder))

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("events.out.tfevents.*"))

    def settings(self, values: dict[str, Any]) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        # No list of columns is written: the page then finds those of all runs, and which of them differ.
        plain = {key: value if isinstance(value, bool | int | float) else str(value) for key, value in values.items()}
        shown = {key: value for key, value in plain.items() if not _is_wiring(key)}
        self._writer._get_file_writer().add_summary(hparams_pb(shown))
        self._writer.flush()

    def scalars(self, row: Row, step: int) -> None:
        for key, value in row.items():
            self._writer.add_scalar(key, value, step)

    def dump(self, group: str, row: Row, step: int) -> None:
        self._writer.flush()

    def histogram(self, key: str, values: np.ndarray, step: int) -> None:
        finite = values[np.isfinite(values)]
        if finite.size:  # TensorBoard raises for an empty histogram, and has no place for what is not finite
            self._writer.add_histogram(key, finite, step)

    def video(self, key: str, frames: np.ndarray, fps: float, step: int) -> None:
        """Shown by TensorBoard as an animated image."""
        import imageio.v3 as iio
        from tensorboard.compat.proto.summary_pb2 import Summary

        gif = iio.imwrite("<bytes>", frames, extension=".gif", duration=1000 / fps, loop=0)
        height, width = frames.shape[1:3]
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=gif)
        self._writer._get_file_writer().add_summary(Summary(value=[Summary.Value(tag=key, image=image)]), step)

    def close(self) -> None:
        self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        """Each event file's length in bytes."""
        self._writer.flush()
        for path in self._files():
            sync(path)
        return {"bytes": {path.name: path.stat().st_size for path in self._files()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for path in self._earlier:
            size = state["bytes"].get(path.name)
            if size is None:
                path.unlink()
            elif path.stat().st_size >= size:
                os.truncate(path, size)
