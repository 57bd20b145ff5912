"""Logs to Weights & Biases: `log_save_wandb=true`; needs `pip install -e '.[wandb]'`."""

import importlib.util
import io
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from files.reading import read_text
from files.writing import write_text
from sinks.animation import gif
from sinks.sink import Row, Sink
from utils import UserError, one_line


def require(mode: str | None) -> None:
    """Raises UserError if the package or a home folder is missing, or the mode is online without a login."""
    if importlib.util.find_spec("wandb") is None:
        raise UserError("log_save_wandb=true: its package is missing; pip install -e '.[wandb]'")
    try:
        Path.home()
    except RuntimeError:  # the system does not know the user, as in a container
        raise UserError("log_save_wandb=true: its package needs a home folder; set HOME to one") from None
    if (mode or os.environ.get("WANDB_MODE", "online")) == "online":
        import wandb

        with _wandb_errors():
            wandb.login()


@contextmanager
def _wandb_errors() -> Iterator[None]:
    import wandb

    try:
        yield
    except wandb.errors.Error as error:
        reason = one_line(error).rstrip(".")
        raise UserError(f"log_save_wandb=true: {reason}; logger.sinks.wandb.mode=offline needs no account") from None


class WandbSink(Sink):
    """Logs a run's settings, curves over environment steps, histograms and videos to a run of Weights & Biases.

    `wandb_id.txt` has the id of that run, so a resumed run continues it. Rows that a killed run had sent after its
    checkpoint are sent again.

    Args:
        log_dir: the run's folder, whose name becomes the name of the run.
        entity: the team; None is the user's own account.
        mode: `offline` writes into the run's folder, for `wandb sync`; None is the value of WANDB_MODE, or online.
        group: runs with the same group are shown together, such as the seeds of a study; None: no group.

    Raises UserError if the package is missing, or Weights & Biases returns an error.
    """

    def __init__(
        self,
        log_dir: Path,
        project: str,
        entity: str | None = None,
        mode: Literal["online", "offline"] | None = None,
        group: str | None = None,
        tags: list[str] | None = None,
        notes: str | None = None,
    ):
        require(mode)
        if not (Path.home().is_dir() and os.access(Path.home(), os.W_OK)):  # wandb would print errors
            os.environ.setdefault("WANDB_CACHE_DIR", str(log_dir))
        import wandb  # imported late: it takes a second

        self._wandb = wandb
        id_file = log_dir / "wandb_id.txt"
        continues = id_file.exists()
        if not continues:
            write_text(id_file, uuid.uuid4().hex)
        with _wandb_errors():
            self._run = wandb.init(
                project=project,
                entity=entity,
                mode=mode,
                dir=log_dir,
                id=read_text(id_file),
                resume="allow" if continues and mode != "offline" else None,
                name=log_dir.name,
                group=group,
                tags=tags,
                notes=notes,
                settings=wandb.Settings(console="off", quiet=True),  # the terminal shows the progress bar
            )
        self._run.define_metric("*", step_metric="step")

    def settings(self, values: dict[str, Any]) -> None:
        self._run.config.update(values, allow_val_change=True)  # a run that begins anew keeps its id

    def scalars(self, row: Row, step: int) -> None:
        self._run.log({**row, "step": step})

    def histogram(self, key: str, values: np.ndarray, step: int) -> None:
        finite = values[np.isfinite(values)]
        if finite.size:
            self._run.log({key: self._wandb.Histogram(np_histogram=np.histogram(finite, bins=64)), "step": step})

    def video(self, key: str, frames: np.ndarray, fps: float, step: int) -> None:
        self._run.log({key: self._wandb.Video(io.BytesIO(gif(frames, fps)), format="gif"), "step": step})

    def image(self, key: str, image: np.ndarray, step: int) -> None:
        self._run.log({key: self._wandb.Image(image), "step": step})

    def close(self) -> None:
        self._run.finish(exit_code=int(sys.exc_info()[0] is not None))  # marks the run as finished or failed
