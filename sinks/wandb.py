"""Logs to Weights & Biases, or by the same calls to Trackio: on this machine, without an account."""

import importlib
import sys
import uuid
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sinks.sink import Row, Sink


class WandbSink(Sink):
    """Logs a run's settings, curves over environment steps and histograms to a run of Weights & Biases.

    `wandb_id.txt` has the id of that run, so a resumed run continues it. Rows that a killed run had sent after its
    checkpoint are sent again.

    With `package="trackio"`, entity, mode, tags and notes have no effect.
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
        package: Literal["wandb", "trackio"] = "wandb",
    ):
        self._package = importlib.import_module(package)  # imported late: it takes a second
        self._is_wandb = package == "wandb"
        options: dict[str, Any] = {"project": project, "name": log_dir.name, "group": group}
        id_file = log_dir / "wandb_id.txt"
        if not id_file.exists():
            id_file.write_text(uuid.uuid4().hex, encoding="utf-8")
        elif mode != "offline":
            options["resume"] = "allow"
        if self._is_wandb:
            options |= {"entity": entity, "mode": mode, "tags": tags, "notes": notes, "dir": log_dir}
            settings = self._package.Settings(console="off", quiet=True)  # the terminal shows the progress bar
            options |= {"id": id_file.read_text(encoding="utf-8"), "settings": settings}
        self._run = self._package.init(**options)
        if self._is_wandb:
            self._run.define_metric("*", step_metric="step")

    def _log(self, values: dict[str, Any], step: int) -> None:
        # W&B would drop a row whose own step is not the newest, as of an evaluation in the background.
        self._run.log({**values, "step": step}) if self._is_wandb else self._run.log(values, step=step)

    def settings(self, values: dict[str, Any]) -> None:
        self._run.config.update(values, **({"allow_val_change": True} if self._is_wandb else {}))

    def dump(self, group: str, row: Row, step: int) -> None:
        self._log(row, step)

    def histogram(self, key: str, values: np.ndarray, step: int) -> None:
        finite = values[np.isfinite(values)]
        if finite.size:
            self._log({key: self._package.Histogram(np_histogram=np.histogram(finite, bins=64))}, step)

    def close(self) -> None:
        self._run.finish(**({"exit_code": int(sys.exc_info()[0] is not None)} if self._is_wandb else {}))
