"""Logs to Weights & Biases, if `log_save_wandb=true`. Its package is optional: `pip install -e '.[wandb]'`."""

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

from sinks.sink import Row, Sink
from utils import UserError, one_line, write_atomically


def require(mode: str | None) -> None:
    """Raises UserError where the package or a home folder is missing, or nobody is logged in for a mode but offline."""
    if importlib.util.find_spec("wandb") is None:
        raise UserError("log_save_wandb=true: its package is missing; pip install -e '.[wandb]'")
    try:
        Path.home()
    except RuntimeError:  # of a user that the system does not know, as in a container
        raise UserError("log_save_wandb=true: its package needs a home folder; set HOME to one") from None
    if (mode or os.environ.get("WANDB_MODE", "online")) == "online":
        import wandb

        with _refusals():
            wandb.login()


@contextmanager
def _refusals() -> Iterator[None]:
    import wandb

    try:
        yield
    except wandb.errors.Error as error:
        reason = one_line(error).rstrip(".")
        raise UserError(f"log_save_wandb=true: {reason}; logger.sinks.wandb.mode=offline needs no account") from None


def _keep_cache_in(log_dir: Path) -> None:
    """Where the home folder cannot be written: otherwise what wandb's process notes goes to the terminal."""
    if not (Path.home().is_dir() and os.access(Path.home(), os.W_OK)):
        os.environ.setdefault("WANDB_CACHE_DIR", str(log_dir))


class WandbSink(Sink):
    """A run there for a run here: settings, curves over environment steps, histograms, videos.

    The run's identity is kept in `wandb_id.txt`, so that a run that is resumed here goes on there too; rows that a
    killed run had sent past its checkpoint are sent again.

    Args:
        log_dir: the run's folder, whose name becomes the run's there.
        project: of Weights & Biases.
        entity: the team; None is the user's own account.
        mode: `offline` keeps everything in the run's folder, for `wandb sync`; None is WANDB_MODE's, or online.

    Raises:
        UserError: if the package is missing, or Weights & Biases refuses.
    """

    def __init__(
        self,
        log_dir: Path,
        project: str,
        entity: str | None = None,
        mode: Literal["online", "offline"] | None = None,
    ):
        require(mode)
        _keep_cache_in(log_dir)
        import wandb  # a second: only where it is wanted

        identity = log_dir / "wandb_id.txt"
        continues = identity.exists()
        if not continues:
            write_atomically(identity, uuid.uuid4().hex)
        with _refusals():
            self._run = wandb.init(
                project=project,
                entity=entity,
                mode=mode,
                dir=log_dir,
                id=identity.read_text(encoding="utf-8"),
                resume="allow" if continues and mode != "offline" else None,
                name=log_dir.name,
                settings=wandb.Settings(console="off", quiet=True),  # the terminal stays the progress bar's
            )
        self._run.define_metric("*", step_metric="step")

    def settings(self, values: dict[str, Any]) -> None:
        self._run.config.update(values, allow_val_change=True)  # a resumed run may be longer

    def scalars(self, row: Row, step: int) -> None:
        self._run.log({**row, "step": step})

    def histogram(self, key: str, values: np.ndarray, step: int) -> None:
        import wandb

        finite = values[np.isfinite(values)]
        if finite.size:
            self._run.log({key: wandb.Histogram(np_histogram=np.histogram(finite, bins=64)), "step": step})

    def video(self, key: str, frames: np.ndarray, fps: float, step: int) -> None:
        import imageio.v3 as iio
        import wandb

        gif = iio.imwrite("<bytes>", frames, extension=".gif", duration=1000 / fps, loop=0)
        self._run.log({key: wandb.Video(io.BytesIO(gif), format="gif"), "step": step})

    def image(self, key: str, image: np.ndarray, step: int) -> None:
        import wandb

        self._run.log({key: wandb.Image(image), "step": step})

    def close(self) -> None:
        self._run.finish(exit_code=int(sys.exc_info()[0] is not None))  # told apart there: finished, or failed
