"""Reads everything in which two equal runs must agree to the last byte.

This is train.csv and eval.csv without the columns that measure time, TensorBoard's scalars and histograms, the weights,
the best policy, every random generator, the counters, the environments and the replay buffer.
"""

import itertools
from pathlib import Path
from typing import Any

from same_bytes import CLOCKS, same, timeless  # noqa: F401  (tests import all comparisons from here)
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from files.tensors import load_plain
from replay import on_disk
from run.saving import best, checkpoint
from run.saving import folder as run_folder


def result(folder: Path) -> dict[str, Any]:
    """Returns everything that must agree, by name, for comparison by `same`."""
    newest, _ = checkpoint.newest_intact(folder, "agent", "run", "policy", buffer=True)
    run = newest.load("run")
    progress = {name: value for name, value in run.pop("progress").items() if name != "episode_age_s"}
    del run["logger"]  # the sizes of its files depend on the columns that measure time
    return {
        "finished": run_folder.finished(folder),
        "step": newest.step,
        "weights": newest.load("agent"),
        "policy": newest.load("policy"),
        "progress": progress,
        "state": run,
        "buffer": newest.load("replay_buffer") if newest.has("replay_buffer") else ring(newest, run["replay_buffer"]),
        "best": best_policy(folder),
        "tensorboard": events(folder / "tb"),
        **{name: timeless(folder / name) for name in ("train.csv", "eval.csv")},
    }


def best_policy(folder: Path) -> tuple[Any, Any]:
    """Returns step and return of the best evaluation, and its policy.

    The files' bytes may differ while the values agree: pickle writes a string once or twice, depending on whether two
    names are one object, and `resume=<folder>` reads other objects from the YAML than `resume=auto`.
    """
    policy = folder / best.BEST / "policy.pt"
    return best.result_of(folder), load_plain(policy) if policy.exists() else None


def ring(newest: checkpoint.Checkpoint, state: dict[str, Any]) -> bytes:
    """Returns the stored transitions, oldest first, however files divide them."""
    return _last_bytes(newest, "rows", 4 * state["row_width"] * min(state["num_added"], state["capacity"]))


def _last_bytes(newest: checkpoint.Checkpoint, ring: str, count: int) -> bytes:
    folder = newest.path.parent / checkpoint.BUFFER
    return b"".join((folder / segment.name).read_bytes() for segment in on_disk.of_ring(newest.segments, ring))[-count:]


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
