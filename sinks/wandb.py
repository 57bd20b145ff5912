"""Logs to Weights & Biases."""

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
        import wandb  # not before: it takes a second

        options: dict[str, Any] = {"project": project, "name": log_dir.name, "group": group, "dir": log_dir}
        id_file = log_dir / "wandb_id.txt"
        if not id_file.exists():
            id_file.write_text(uuid.uuid4().hex, encoding="utf-8")
        elif mode != "offline":
            options["resume"] = "allow"
        options |= {"entity": entity, "mode": mode, "tags": tags, "notes": notes, "id": id_file.read_text("utf-8")}
        options["settings"] = wandb.Settings(console="off", quiet=True)  # the terminal shows the progress bar
        self._run, self._histogram = wandb.init(**options), wandb.Histogram
        self._run.define_metric("*", step_metric="step")

    def settings(self, values: dict[str, Any]) -> None:
        self._run.config.update(values, allow_val_change=True)

    def dump(self, group: str, row: Row, step: int) -> None:
        # Not with W&B's own step, which must grow; that of an evaluation in the background may be an older one.
        self._run.log({**row, "step": step})

    def histogram(self, key: str, values: np.ndarray, step: int) -> None:
        finite = values[np.isfinite(values)]
        if finite.size:
            self._run.log({key: self._histogram(np_histogram=np.histogram(finite, bins=64)), "step": step})

    def close(self) -> None:
        self._run.finish(exit_code=int(sys.exc_info()[0] is not None))
