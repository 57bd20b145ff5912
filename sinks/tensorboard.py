"""Writes the logs as TensorBoard event files, and cuts them back when a run is resumed."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from sinks.sink import Row, Sink
from utils import UserError, require_count, sync

REPEATED = {f"replay_buffer.{name}" for name in ("capacity", "seed", "with_replacement")}  # repeat keys of train.yaml


def _is_wiring(key: str) -> bool:
    """Whether a setting only connects components, or repeats another setting."""
    return key.startswith(("logger.", "evaluator.")) or key in REPEATED or key.rsplit(".", 1)[-1].startswith("_")


def require_utf8(folder: Path) -> None:
    """Raises UserError for a folder that TensorBoard would not find, because it reads every name as UTF-8."""
    if os.fsencode(folder) != str(folder).encode(errors="replace"):
        raise UserError(
            f"{folder}: its name is not UTF-8, which TensorBoard needs; choose another folder, log_save_tb=false, or a "
            "locale such as LC_ALL=C.UTF-8"
        )


class TensorBoardSink(Sink):
    """Writes event files under `tb/`; the HParams page shows the settings beside the last value of each curve."""

    def __init__(self, log_dir: Path):
        from torch.utils.tensorboard import SummaryWriter  # imported late: it takes half a second

        self._folder = log_dir / "tb"
        if self._folder.exists() and not self._folder.is_dir():
            raise UserError(f"{self._folder}: a file, where the events' folder has to be; remove it")
        require_utf8(self._folder)
        self._folder.mkdir(exist_ok=True)
        self._earlier = self._files()  # written by earlier processes of the run
        self._writer = SummaryWriter(str(self._folder))

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("events.out.tfevents.*"))

    def settings(self, values: dict[str, Any]) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        # Without a list of columns, the page collects those of all runs and shows which of them differ.
        values = {key: value if isinstance(value, bool | int | float) else str(value) for key, value in values.items()}
        shown = {key: value for key, value in values.items() if not _is_wiring(key)}
        self._writer._get_file_writer().add_summary(hparams_pb(shown))
        self._writer.flush()

    def scalars(self, row: Row, step: int) -> None:
        for key, value in row.items():
            self._writer.add_scalar(key, value, step)

    def dump(self, group: str, row: Row, step: int) -> None:
        self._writer.flush()

    def histogram(self, key: str, values: np.ndarray, step: int) -> None:
        finite = values[np.isfinite(values)]
        if finite.size:  # TensorBoard raises for an empty histogram, and shows only finite values
            self._writer.add_histogram(key, finite, step)

    def video(self, key: str, frames: np.ndarray, fps: float, step: int) -> None:
        """Writes a GIF, which TensorBoard shows as an animated image."""
        import imageio.v3 as iio
        from tensorboard.compat.proto.summary_pb2 import Summary

        gif = iio.imwrite("<bytes>", frames, extension=".gif", duration=1000 / fps, loop=0)
        height, width = frames.shape[1:3]
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=gif)
        self._writer._get_file_writer().add_summary(Summary(value=[Summary.Value(tag=key, image=image)]), step)

    def image(self, key: str, image: np.ndarray, step: int) -> None:
        self._writer.add_image(key, image, step, dataformats="HWC")

    def close(self) -> None:
        self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        """Returns each event file's length in bytes."""
        self._writer.flush()
        for path in self._files():
            sync(path)
        return {"bytes": {path.name: path.stat().st_size for path in self._files()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        ends = {path: state["bytes"].get(path.name) for path in self._earlier}
        for path, size in ends.items():
            require_count(0 if size is None else size, path.name)  # all are checked before any is cut
        for path, size in ends.items():
            if size is None:
                path.unlink()
            elif path.stat().st_size >= size:
                os.truncate(path, size)
