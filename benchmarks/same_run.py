"""Whether two runs ended in the same bytes.

Compared are train.csv and eval.csv without the columns that measure time, TensorBoard's scalars and histograms, the
final weights, every generator, the counters, the environments and the replay buffer.
"""

import csv
import itertools
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from replay import on_disk
from run.saving import checkpoint
from run.saving import folder as run_folder

CLOCKS = ("duration", "steps_per_second")


def result(folder: Path) -> dict[str, Any]:
    """Everything that has to be the same: by name, comparable with `same`."""
    found, _ = checkpoint.newest_intact(folder, "agent", "run", "policy", buffer=True)
    run = found.load("run")
    progress = {name: value for name, value in run.pop("progress").items() if name != "episode_age_s"}
    del run["logger"]  # where its files end, and they have columns that measure time
    return {
        "finished": run_folder.finished(folder),
        "step": found.step,
        "weights": found.load("agent"),
        "policy": found.load("policy"),
        "progress": progress,
        "state": run,
        "buffer": found.load("replay_buffer") if found.has("replay_buffer") else ring(found, run["replay_buffer"]),
        "tensorboard": events(folder / "tb"),
        **{name: timeless(folder / name) for name in ("train.csv", "eval.csv")},
    }


def ring(found: checkpoint.Checkpoint, state: dict[str, Any]) -> bytes:
    """The transitions in the buffer, oldest first, however they were cut into files, and their frames."""
    rows = _newest(found, "rows", 4 * state["row_width"] * min(state["num_added"], state["capacity"]))
    if "num_frames" not in state:
        return rows
    width = -(-state["frame_bytes"] // 4)
    return rows + _newest(found, "frames", 4 * width * min(state["num_frames"], state["frames"]))


def _newest(found: checkpoint.Checkpoint, ring: str, count: int) -> bytes:
    folder = found.path.parent / checkpoint.BUFFER
    return b"".join((folder / segment.name).read_bytes() for segment in on_disk.of_ring(found.segments, ring))[-count:]


def timeless(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    columns = [index for index, name in enumerate(header) if name not in CLOCKS]
    return [[row[index] for index in columns] for row in (header, *rows)]


def events(folder: Path) -> dict[str, list[tuple[int, bytes]]]:
    """Every curve and histogram by tag, (step, summary) in the order of writing, without those that measure time."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    written = [list(EventFileLoader(str(path)).Load()) for path in folder.glob("events.*")]
    # By the clock in each file's first event: their names hold whole seconds, in which a run can start twice.
    for event in itertools.chain(*sorted(written, key=lambda file: file[0].wall_time)):
        for value in event.summary.value:
            if not value.tag.endswith(CLOCKS) and not value.tag.startswith("_hparams_"):  # the run's settings
                found.setdefault(value.tag, []).append((event.step, value.SerializeToString()))
    return found


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, nested or not."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)  # nan
