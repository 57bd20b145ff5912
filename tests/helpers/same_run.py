"""Everything in which two equal runs must agree to the last bit, and how it is compared."""

import csv
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from run.checkpoint import read_newest
from run.evaluation.evaluations import BEST
from run.workspace import read_finished

CLOCKS = ("duration", "steps_per_second")  # columns that measure time


def result(folder: Path) -> dict[str, Any]:
    """Returns logs, weights, generators, counters, environments and the replay buffer of a run, by name."""
    newest = read_newest(folder, "agent", "run", "policy", "replay_buffer", identity={}, with_rows=True)
    run = newest.states["run"]
    del run["logger"]  # the sizes of its files depend on the columns that measure time
    run["progress"].pop("episode_age_s")
    best = folder / BEST / "policy.pt"
    rows = {kind: read_rows(newest.path.parent / kind, newest.manifest[kind]) for kind in ("buffer", "preloaded")}
    if "replay_buffer" in run:  # segments may begin with older rows
        state = run["replay_buffer"]
        count = state["row_width"] * min(state["num_added"], state["capacity"])
        rows["buffer"]["rows"] = rows["buffer"].get("rows", np.zeros(0))[-count:]
    return {
        "finished": read_finished(folder),
        "step": newest.manifest["step"],
        **newest.states,
        **rows,
        "best": torch.load(best, weights_only=True) if best.exists() else None,
        "tensorboard": events(folder / "tb"),
        **{name: timeless(folder / name) for name in ("train.csv", "eval.csv")},
    }


def read_rows(folder: Path, segments: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Returns each ring's rows, oldest first."""
    rings: dict[str, list[np.ndarray]] = {}
    for segment in segments:
        rings.setdefault(segment["ring"], []).append(np.fromfile(folder / segment["name"], np.float32))
    return {name: np.concatenate(arrays) for name, arrays in rings.items()}


def timeless(path: Path) -> list[list[str]]:
    """Returns the rows of a CSV file, header first, without the columns that measure time."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    columns = [index for index, name in enumerate(header) if name not in CLOCKS]
    return [[row[index] for index in columns] for row in (header, *rows)]


def events(folder: Path) -> dict[str, list[tuple[int, bytes]]]:
    """Returns (step, summary) of every curve and histogram by tag, as written, without those that measure time."""
    tags: dict[str, list[tuple[int, bytes]]] = {}
    files = [list(EventFileLoader(str(path)).Load()) for path in folder.glob("events.*")]
    # Sort by the first event's time: names have whole seconds, and a run can start twice within one.
    for event in itertools.chain(*sorted(files, key=lambda file: file[0].wall_time)):
        for value in event.summary.value:
            if not value.tag.endswith(CLOCKS) and not value.tag.startswith("_hparams_"):  # _hparams_: settings
                tags.setdefault(value.tag, []).append((event.step, value.SerializeToString()))
    return tags


def same(a: Any, b: Any) -> bool:
    """Returns whether two values, which may be nested, are equal to the last bit."""
    if isinstance(a, torch.Tensor | np.ndarray) and isinstance(b, type(a)):
        return a.dtype == b.dtype and a.shape == b.shape and np.asarray(a).tobytes() == np.asarray(b).tobytes()
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)  # nan
