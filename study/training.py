"""The curves of train.csv: losses, temperature, entropy, speed, of one run or averaged over a group's."""

import numpy as np

from study import statistics
from study.groups import Group
from study.runs import Columns, read
from study.statistics import Average, Points

SPEED = "steps_per_second"
PANELS = (  # column of train.csv, title, unit
    ("actor_loss", "actor loss", ""),
    ("critic_loss", "Q loss", ""),
    ("value_loss", "V loss", ""),
    ("alpha_loss", "temperature loss", ""),
    ("alpha_value", "temperature", "alpha"),
    ("actor_entropy", "policy entropy", "nats"),
    (SPEED, "speed, once updates run", "environment steps / s"),
)
NUM_POINTS = 50  # of an averaged curve


def without_seeding(train: Columns) -> Columns:
    """Returns the log with the speeds of only those episodes that had updates, if there are any.

    Episodes of random actions are ten times faster and would flatten the curve; so would that in which updates began.
    """
    updated = {step for column, *_ in PANELS if column.endswith("_loss") for step in train.get(column, ([], []))[0]}
    kept = [(step, value) for step, value in zip(*train.get(SPEED, ([], [])), strict=True) if step in updated]
    kept = kept[1:] if len(kept) > 2 else kept
    return train | {SPEED: ([step for step, _ in kept], [value for _, value in kept])} if kept else train


def averages(group: Group) -> dict[str, Average]:
    """Averages the training logs of a group's runs, by column; leaves out columns that no run has."""
    logs = [without_seeding(read(run.folder / "train.csv")) for run in group.runs]
    ends = np.linspace(0, max(1, *(run.length for run in group.runs)), NUM_POINTS + 1)[1:]
    curves = {column: [_thinned(log[column], ends) for log in logs if column in log] for column, *_ in PANELS}
    return {column: statistics.mean(of_runs) for column, of_runs in curves.items() if of_runs}


def _thinned(curve: Points, ends: np.ndarray) -> Points:
    """Averages a run's rows between consecutive steps of `ends`; rows after the last step count in the last average."""
    steps, values = map(np.asarray, curve)
    bins = np.minimum(np.searchsorted(ends, steps), len(ends) - 1)
    filled = np.unique(bins)
    return ends[filled].tolist(), [float(values[bins == number].mean()) for number in filled]
