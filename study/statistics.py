"""Averages over seeds and tasks with their uncertainty.

Per task: the mean over runs. Per study: the interquartile mean, that of the middle half of all runs' scores. Intervals
hold 95 % of bootstrap resamples (percentiles); a study is resampled within each task. As in Agarwal et al. 2021,
arXiv 2108.13264.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

NUM_RESAMPLES = 2000
Points = tuple[Sequence[float], Sequence[float]]  # rising steps, values


@dataclass(frozen=True)
class Average:
    """Averages at `steps`, all of shape (S,).

    Attributes:
        value: the mean or the interquartile mean.
        low, high: its 95 % bootstrap interval, NaN where no task has two runs.
        num_runs: how many runs had got there.
        total: how many runs there are.
    """

    steps: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    num_runs: np.ndarray
    total: int

    @property
    def fewer(self) -> np.ndarray:
        """Where not all runs have got, (S,)."""
        return self.num_runs < self.total

    @property
    def at_end(self) -> tuple[float, float, float, int]:
        """Value, low, high and number of runs at the last step."""
        return self.value[-1], self.low[-1], self.high[-1], int(self.num_runs[-1])


def mean(curves: Sequence[Points], steps: Sequence[float] | None = None) -> Average:
    """The mean over runs of one task, at `steps` or wherever one of them has a point."""
    return _average([curves], np.mean, steps)


def interquartile_mean(tasks: Sequence[Sequence[Points]], steps: Sequence[float] | None = None) -> Average:
    """The interquartile mean over the runs of several tasks, where every task has a run."""
    return _average(tasks, _middle_half, steps)


def of_scores(tasks: Sequence[Sequence[float]]) -> Average:
    """The same of single scores, such as final returns, at step 0; of one task the mean."""
    curves = [[([0.0], [score]) for score in scores] for scores in tasks]
    return mean(curves[0]) if len(tasks) == 1 else interquartile_mean(curves)


def _middle_half(scores: np.ndarray, axis: int) -> np.ndarray:
    return stats.trim_mean(scores, 0.25, axis=axis)


def _average(tasks: Sequence[Sequence[Points]], statistic: Any, steps: Sequence[float] | None) -> Average:
    everywhere = {step for curves in tasks for run_steps, _ in curves for step in run_steps}
    grid = np.array(sorted(everywhere if steps is None else steps))  # (S,)
    scores = [_on_grid(curves, grid) for curves in tasks]  # each (runs, S)
    there = [np.isfinite(task) for task in scores]
    covered = np.logical_and.reduce([task.any(axis=0) for task in there])
    result = np.full((3, len(grid)), np.nan)
    # Steps that the same runs have reached are averaged, and resampled, together.
    patterns, which = np.unique(np.concatenate(there)[:, covered], axis=1, return_inverse=True)
    for index in range(patterns.shape[1]):
        columns = np.flatnonzero(covered)[which.reshape(-1) == index]
        present = [task[mask[:, columns[0]]][:, columns] for task, mask in zip(scores, there, strict=True)]
        result[:, columns] = _with_interval(present, statistic)
    count = np.concatenate(there).sum(axis=0)
    value, low, high = result[:, covered]
    return Average(grid[covered], value, low, high, count[covered], total=sum(map(len, tasks)))


def _on_grid(curves: Sequence[Points], grid: np.ndarray) -> np.ndarray:
    """Linear between a run's points and NaN outside them: (runs, S)."""
    rows = [
        np.interp(grid, *curve, left=np.nan, right=np.nan) if len(curve[0]) else np.full(len(grid), np.nan)
        for curve in curves
    ]
    return np.array(rows).reshape(len(curves), len(grid))


def _with_interval(tasks: list[np.ndarray], statistic: Any) -> np.ndarray:
    """Value, low and high over tasks of shape (runs, S): (3, S)."""
    repeated = [task for task in tasks if len(task) > 1]
    fixed = np.concatenate(
        [np.empty((0, tasks[0].shape[1])), *(task for task in tasks if len(task) == 1)]
    ).T  # (S, runs)

    def of_all(*samples: np.ndarray, axis: int) -> np.ndarray:  # each (S, resamples, runs)
        constant = np.broadcast_to(fixed[:, None], (*samples[0].shape[:2], fixed.shape[-1]))
        return statistic(np.concatenate([*samples, constant], axis=axis), axis=axis)

    value = statistic(np.concatenate(tasks), axis=0)
    if not repeated:
        return np.stack([value, np.full_like(value, np.nan), np.full_like(value, np.nan)])
    interval = stats.bootstrap(
        repeated,
        of_all,
        n_resamples=NUM_RESAMPLES,
        batch=200,
        axis=0,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),  # the same runs, the same interval
    ).confidence_interval
    return np.stack([value, interval.low, interval.high])
