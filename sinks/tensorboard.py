"""Writes the logs as TensorBoard event files. When a run is resumed, they are cut back."""

import math
import os
import threading
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from files.writing import make_folder, sync, truncate
from settings.keys import FROM_ENVIRONMENT
from sinks.animation import gif
from sinks.sink import Row, Sink
from utils import UserError, require_count

# TensorBoard sorts groups of curves and columns of HParams by name, capitals first.
OF_INFO = ("eval_info/", "train_info/")  # an agent that always fails has a curve, too
RETURNS = {"eval/episode_reward": "Return/evaluation", "train/episode_reward": "Return/training"}
# Settings that follow from others: repeated keys of train.yaml, and shapes, which come from the task.
DERIVED = {f"replay_buffer.{name}" for name in ("capacity", "seed", "with_replacement")} | {
    f"agent.{name}" for name in FROM_ENVIRONMENT
}
REPEATS = {"agent.reward_scale": "reward_scale", "agent.augmentation.pad": "image_pad"}  # unless they are set


@dataclass
class _Constant:
    """A curve that has had one value so far: the steps of its first and its last point, and their times in seconds."""

    value: float
    first_step: int
    first_s: float
    last_step: int
    last_s: float


def require_utf8(folder: Path) -> None:
    """Raises UserError for a folder that TensorBoard would not find, because it reads every name as UTF-8."""
    if os.fsencode(folder) != str(folder).encode(errors="replace"):
        raise UserError(
            f"{folder}: its name is not UTF-8, which TensorBoard needs; choose another folder, log_save_tb=false, or a "
            "locale such as LC_ALL=C.UTF-8"
        )


def _report_thread(failure: Any) -> None:
    """Acts as `threading.excepthook`, but ignores the writer's thread, whose error its `flush` raises too."""
    if type(failure.thread).__name__ != "_AsyncWriterThread":
        threading.__excepthook__(failure)


class TensorBoardSink(Sink):
    """Writes event files under `tb/`; the HParams page shows the settings beside the last value of each curve.

    A curve appears when its value first changes, with its earlier points; returns and values of `info_keys` appear at
    once. Returns are also written to `Return/`, which TensorBoard shows first.
    """

    def __init__(self, log_dir: Path):
        from torch.utils.tensorboard import SummaryWriter  # imported late: it takes half a second

        self._folder = log_dir / "tb"
        if self._folder.exists() and not self._folder.is_dir():
            raise UserError(f"{self._folder}: a file, where the events' folder has to be; remove it")
        require_utf8(self._folder)
        make_folder(self._folder)
        self._earlier = self._files()  # written by earlier processes of the run
        if threading.excepthook is threading.__excepthook__:  # and not the user's
            threading.excepthook = _report_thread
        self._writer = SummaryWriter(str(self._folder))
        self._constant: dict[str, _Constant] = {}
        self._varying = set(RETURNS)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("events.out.tfevents.*"))

    def settings(self, values: dict[str, Any]) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        # Without a list of columns, the page collects those of all runs and shows which of them differ.
        shown = {
            key: value if isinstance(value, bool | int | float) else str(value)
            for key, value in values.items()
            if key not in DERIVED and not key.startswith(("logger.", "evaluator."))
            if not key.rsplit(".", 1)[-1].startswith("_")  # a key that only connects components
            if key not in REPEATS or value != values.get(REPEATS[key])
        }
        self._writer._get_file_writer().add_summary(hparams_pb(shown))
        self._writer.flush()

    def scalars(self, row: Row, step: int) -> None:
        for key, value in row.items():
            if key in RETURNS:
                self._writer.add_scalar(RETURNS[key], value, step)
            if key in self._varying or key.startswith(OF_INFO) or self._varies(key, value, step):
                self._writer.add_scalar(key, value, step)

    def _varies(self, key: str, value: float, step: int) -> bool:
        """Returns whether a curve has had a value other than this one; if so, writes its earlier points."""
        now_s, value = time.time(), float(value)  # checkpoints cannot hold numpy's numbers
        if math.isnan(value):  # a curve starts at its first number
            return False
        held = self._constant.setdefault(key, _Constant(value, step, now_s, step, now_s))
        if value == held.value:
            held.last_step, held.last_s = step, now_s
            return False
        self._varying.add(key)
        del self._constant[key]
        for held_step, held_s in dict.fromkeys([(held.first_step, held.first_s), (held.last_step, held.last_s)]):
            self._writer.add_scalar(key, held.value, held_step, held_s)
        return True

    def dump(self, group: str, row: Row, step: int) -> None:
        self._writer.flush()

    def histogram(self, key: str, values: np.ndarray, step: int) -> None:
        finite = values[np.isfinite(values)]
        if finite.size:  # TensorBoard raises for an empty histogram, and shows only finite values
            self._writer.add_histogram(key, finite, step)

    def video(self, key: str, frames: np.ndarray, fps: float, step: int) -> None:
        """Writes a GIF, which TensorBoard shows as an animated image."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        height, width = frames.shape[1:3]
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=gif(frames, fps))
        self._writer._get_file_writer().add_summary(Summary(value=[Summary.Value(tag=key, image=image)]), step)

    def image(self, key: str, image: np.ndarray, step: int) -> None:
        self._writer.add_image(key, image, step, dataformats="HWC")

    def close(self) -> None:
        self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        """Returns each event file's length in bytes, and which curves have been constant so far."""
        self._writer.flush()
        for path in self._files():
            sync(path)
        return {
            "bytes": {path.name: path.stat().st_size for path in self._files()},
            "constant": {key: list(astuple(held)) for key, held in self._constant.items()},
            "varying": sorted(self._varying),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        ends = {path: state["bytes"].get(path.name) for path in self._earlier}
        for path, size in ends.items():
            require_count(0 if size is None else size, path.name)  # checks all before cutting any
        constant = {key: _restored(held, key) for key, held in state.get("constant", {}).items()}
        self._varying = set(RETURNS).union(map(str, state.get("varying", ())))
        self._constant = {key: held for key, held in constant.items() if key not in self._varying}
        for path, size in ends.items():
            if size is None:
                path.unlink()
            elif path.stat().st_size >= size:
                truncate(path, size)


def _restored(held: Any, key: str) -> _Constant:
    """Returns a constant curve from a saved state, which may be damaged or forged."""
    value, first_step, first_s, last_step, last_s = held
    if not all(isinstance(number, int | float) for number in (value, first_s, last_s)):
        raise ValueError(f"{key}: a saved value is not a number")
    return _Constant(value, require_count(first_step, key), first_s, require_count(last_step, key), last_s)
