"""Averages over seeds and tasks, with confidence intervals: as in Agarwal et al. 2021 (arXiv 2108.13264).

Per task: the mean over runs. Over tasks: the interquartile mean, the mean of the middle half of all runs' scores.
Intervals are 95 % percentile bootstrap intervals; over tasks, runs are resampled within each task. With so few runs
that resamples add nothing, the band is the range of the runs (see `has_interval`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import trim_mean

NUM_RESAMPLES = 2000
Points = tuple[Sequence[float], Sequence[float]]  # rising steps, values


@dataclass(frozen=True)
class Average:
    """Averages at `steps`, all of shape (S,)."""

    steps: np.ndarray
    value: np.ndarray  # the mean or the interquartile mean
    low: np.ndarray  # of the 95 % bootstrap interval, or with few runs the lowest; NaN where no task has two runs
    high: np.ndarray
    num_runs: np.ndarray  # that have reached each step
    total: int  # number of runs

    @property
    def fewer(self) -> np.ndarray:
        """Whether fewer than all runs have reached each step, (S,)."""
        return self.num_runs < self.total

    @property
    def at_end(self) -> tuple[float, float, float, int]:
        """Returns value, low, high and number of runs at the last step."""
        return self.value[-1], self.low[-1], self.high[-1], int(self.num_runs[-1])


def has_interval(num_runs: Sequence[int]) -> bool:
    """Returns whether tasks with these numbers of runs have a 95 % interval.

    One of the 27 equally likely resamples of three runs repeats the lowest three times. That is more than 2.5 %, so the
    bootstrap interval would be the range. Over several tasks, two runs each make the interval too narrow.
    """
    return min(num_runs) >= (4 if len(num_runs) == 1 else 3)


def of_scores(tasks: Sequence[Sequence[float]]) -> Average:
    """Averages single scores, such as final returns: the mean for one task, else the interquartile mean."""
    return average([[([0.0], [score]) for score in scores] for scores in tasks])


def resample(scores: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draws runs with replacement: (runs, ...) -> (NUM_RESAMPLES, runs, ...)."""
    return scores[generator.integers(len(scores), size=(NUM_RESAMPLES, len(scores)))]


def average(tasks: Sequence[Sequence[Points]], steps: Sequence[float] | None = None) -> Average:
    """Averages runs, at the steps that at least one run of every task covers: the mean for one task, else the
    interquartile mean."""
    everywhere = {step for curves in tasks for run_steps, _ in curves for step in run_steps}
    grid = np.array(sorted(everywhere if steps is None else steps))  # (S,)
    scores = [np.array([_interpolate(curve, grid) for curve in curves]) for curves in tasks]  # each (runs, S)
    reached = [np.isfinite(task) for task in scores]
    covered = np.logical_and.reduce([task.any(axis=0) for task in reached])
    result = np.full((3, len(grid)), np.nan)
    for column in np.flatnonzero(covered):
        present = [task[mask[:, column], column] for task, mask in zip(scores, reached, strict=True)]
        result[:, column] = _with_interval(present)
    count = np.concatenate(reached).sum(axis=0)
    value, low, high = result[:, covered]
    return Average(grid[covered], value, low, high, count[covered], total=sum(map(len, tasks)))


def _interpolate(curve: Points, grid: np.ndarray) -> np.ndarray:
    """Interpolates linearly between a run's points, NaN outside them: (S,)."""
    return np.interp(grid, *curve, left=np.nan, right=np.nan) if len(curve[0]) else np.full(len(grid), np.nan)


def _with_interval(tasks: list[np.ndarray]) -> np.ndarray:
    """Returns value, low and high, (3,), over tasks' scores, each (runs,)."""
    statistic: Any = np.mean if len(tasks) == 1 else partial(trim_mean, proportiontocut=0.25)
    value = statistic(np.concatenate(tasks), axis=0)
    if max(map(len, tasks)) == 1:
        return np.stack([value, np.full_like(value, np.nan), np.full_like(value, np.nan)])
    if len(tasks) == 1 and not has_interval([len(tasks[0])]):
        return np.stack([value, tasks[0].min(axis=0), tasks[0].max(axis=0)])
    generator = np.random.default_rng(0)  # equal runs give equal intervals
    resampled = np.concatenate([resample(task, generator) for task in tasks], axis=1)
    return np.stack([value, *np.percentile(statistic(resampled, axis=1), [2.5, 97.5], axis=0)])
