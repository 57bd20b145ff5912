"""What a sink is, and how log keys are named.

A log key is `train/...`, `train_critic/...`, `eval/...` and so on: its group, train or eval, a separator and a name.
The CSV column and the console read the name with `/` turned into `_`; TensorBoard shows the key itself.
"""

from pathlib import Path
from typing import Any

import numpy as np

GROUPS = ("train", "eval")
Row = dict[str, float]  # key -> averaged value; counters stay ints


def column(key: str) -> str:
    """`train_critic/loss` -> `critic_loss`, `eval/episode_reward` -> `episode_reward`."""
    group = group_of(key)
    return key[len(group) + 1 :].replace("/", "_")


def group_of(key: str) -> str:
    for group in GROUPS:
        if key.startswith((f"{group}/", f"{group}_")):
            return group
    raise ValueError(f"log key {key!r}: it has to start with train/, train_, eval/ or eval_")


class Sink:
    """Somewhere that logs go. A new one overrides what it shows, and is a line under `logger.sinks` in YAML.

    Args:
        log_dir: the run's folder.
    """

    def __init__(self, log_dir: Path):
        self.log_dir = log_dir

    def settings(self, values: dict[str, Any]) -> None:
        """The run's configuration by dotted key, once, before anything else."""

    def scalars(self, row: Row, step: int) -> None:
        """Points of curves: averaged values by key."""

    def dump(self, group: str, row: Row, step: int) -> None:
        """One row of a group, at the end of an episode or an evaluation: averaged values by key."""

    def histogram(self, key: str, values: np.ndarray, step: int) -> None:
        """Values of any number, flat."""

    def video(self, key: str, frames: np.ndarray, fps: float, step: int) -> None:
        """Frames (T, H, W, 3), uint8."""

    def image(self, key: str, image: np.ndarray, step: int) -> None:
        """A picture (H, W, 3), uint8."""

    def close(self) -> None:
        """The run is over."""

    def state_dict(self) -> dict[str, Any]:
        """Where the log ends; what lies before that is on the disk when this returns."""
        return {}

    def lost(self, state: dict[str, Any]) -> dict[Path, str]:
        """The files without which the log cannot go on where the state was taken, and what is wrong with each.

        Where a run goes on all the same, what is left of them is set aside before `load_state_dict` is called.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where the state was taken: what was written later is cut off."""
