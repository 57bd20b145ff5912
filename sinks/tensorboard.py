"""Writes the logs as TensorBoard event files. When a run is resumed, they are cut back."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from sinks.sink import Row, Sink
from utils import sync

# TensorBoard sorts groups of curves and columns of HParams by name, capitals first.
RETURNS = {"eval/episode_reward": "Return/evaluation", "train/episode_reward": "Return/training"}


class TensorBoardSink(Sink):
    """Writes event files under `tb/`; the HParams page shows the settings beside the last value of each curve.

    Returns are also written to `Return/`, which TensorBoard shows first.
    """

    def __init__(self, log_dir: Path):
        from torch.utils.tensorboard import SummaryWriter  # imported late: it takes half a second

        self._folder = log_dir / "tb"
        self._earlier = self._files()  # written by earlier processes of the run
        self._writer = SummaryWriter(str(self._folder))

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("events.out.tfevents.*"))

    def settings(self, values: dict[str, Any]) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        # Without a list of columns, the page collects those of all runs and shows which of them differ.
        names = {key: key.rpartition(".")[2] for key in values}
        shown = {
            key: value if isinstance(value, bool | int | float) else str(value)
            for key, value in values.items()
            if not key.startswith(("logger.", "evaluator.")) and not names[key].startswith("_")
            if names[key] == key or value != values.get(names[key], ...)  # not a key that repeats another
        }
        self._writer._get_file_writer().add_summary(hparams_pb(shown))
        self._writer.flush()

    def dump(self, group: str, row: Row, step: int) -> None:
        for key, value in row.items():
            for tag in (key, RETURNS[key]) if key in RETURNS else (key,):
                self._writer.add_scalar(tag, value, step)
        self._writer.flush()

    def histogram(self, key: str, values: np.ndarray, step: int) -> None:
        finite = values[np.isfinite(values)]
        if finite.size:  # TensorBoard raises for an empty histogram, and shows only finite values
            self._writer.add_histogram(key, finite, step)

    def close(self) -> None:
        self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        self._writer.flush()
        for path in self._files():
            sync(path)
        return {"bytes": {path.name: path.stat().st_size for path in self._files()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for path in self._earlier:
            if path.name not in state["bytes"]:
                path.unlink()
            else:
                os.truncate(path, min(path.stat().st_size, state["bytes"][path.name]))
