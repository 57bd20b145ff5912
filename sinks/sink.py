"""The interface of sinks, and the names of log keys.

A log key, such as `train/duration`, `train_critic/loss` or `eval/episode_reward`, is its group (train or eval), `/` or
`_`, and a name. CSV columns and the console use the name with `/` replaced by `_`; TensorBoard shows the whole key.
"""

from pathlib import Path
from typing import Any

import numpy as np

GROUPS = ("train", "eval")
Row = dict[str, float]  # key -> averaged value; counters stay ints


def group_of(key: str) -> str:
    for group in GROUPS:
        if key.startswith((f"{group}/", f"{group}_")):
            return group
    raise ValueError(f"log key {key!r}: it has to start with train/, train_, eval/ or eval_")


def to_column(key: str) -> str:
    """Returns a key's column: `train_critic/loss` -> `critic_loss`, `eval/episode_reward` -> `episode_reward`."""
    return key[len(group_of(key)) + 1 :].replace("/", "_")


class Sink:
    """A destination of logs of the run in `log_dir`. A new sink overrides the methods it needs, and is listed under
    `logger.sinks` in the YAML."""

    def __init__(self, log_dir: Path):
        self.log_dir = log_dir

    def settings(self, values: dict[str, Any]) -> None:
        """Receives the run's configuration by dotted key, once, before anything else."""

    def dump(self, group: str, row: Row, step: int) -> None:
        """Receives one row of a group at the end of an episode or an evaluation: averaged values by key."""

    def histogram(self, key: str, values: np.ndarray, step: int) -> None:
        """Receives the values of a histogram, (N,)."""

    def close(self) -> None:
        """Closes the log at the end of the run."""

    def state_dict(self) -> dict[str, Any]:
        """Returns where the log ends now, after flushing it to the disk."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues the log from the state, and removes everything written later."""
