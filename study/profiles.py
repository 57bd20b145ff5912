"""Performance profiles and probabilities of improvement: as in Agarwal et al. 2021 (arXiv 2108.13264) and rliable.

Both use final returns, the last evaluations of finished runs, and both are means over tasks. Intervals are 95 %
percentile bootstrap intervals; each task of each group is resampled separately. With too few runs there is no interval
(see `study.statistics.has_interval`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from study.groups import Group
from study.statistics import has_interval, resample

THRESHOLDS = np.arange(0.0, 1001.0, 10.0)  # returns, (T,)
TAUS = THRESHOLDS / 1000  # the highest return of a suite task
MIN_RUNS = 2  # of a group on a task
FinalReturns = dict[str, np.ndarray]  # task -> final returns of a group's runs, (N,)


@dataclass(frozen=True)
class Profile:
    """The share of a group's runs whose final return, divided by 1000, is above each of `TAUS`: value and 95 % band,
    (T,); the band is NaN if there are too few runs."""

    label: str
    tasks: tuple[str, ...]
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Improvement:
    """The probability that a run of `label` ends higher than a run of `other`, with its 95 % interval or NaN."""

    label: str
    other: str
    tasks: tuple[str, ...]
    value: float
    low: float
    high: float


def final_returns(groups: Sequence[Group]) -> dict[str, FinalReturns]:
    """Returns the final returns of each label's longest finished runs; an empty array if none has finished."""
    found: dict[str, FinalReturns] = {}
    for group in groups:
        ends = [run.returns[1][-1] for run in group.longest]
        found.setdefault(group.label, {})[group.task] = np.array(ends, dtype=float)
    return found


def performance_profiles(labels: dict[str, FinalReturns]) -> list[Profile]:
    """Computes the profiles of labels with at least two tasks and, on each of them, at least two finished runs."""
    profiles = []
    for label, returns in labels.items():
        tasks = list(returns.values())
        if len(tasks) > 1 and min(map(len, tasks)) >= MIN_RUNS:
            generator = np.random.default_rng(0)  # equal runs give equal intervals
            low, high = _interval(share_above([resample(task, generator) for task in tasks]), [tasks])
            profiles.append(Profile(label, tuple(returns), share_above(tasks), low, high))
    return profiles


def improvements(labels: dict[str, FinalReturns]) -> list[Improvement]:
    """Compares each pair of labels, over the tasks on which both have at least two finished runs."""
    found = []
    for label, other in combinations(labels, 2):
        pairs = {task: (ours, labels[other].get(task, np.empty(0))) for task, ours in labels[label].items()}
        pairs = {task: pair for task, pair in pairs.items() if min(map(len, pair)) >= MIN_RUNS}
        if pairs:
            sides = [[pair[side] for pair in pairs.values()] for side in (0, 1)]
            generator = np.random.default_rng(0)
            resampled = [[resample(task, generator) for task in tasks] for tasks in sides]
            low, high = map(float, _interval(probability_of_improvement(*resampled), sides))
            value = float(probability_of_improvement(*sides))
            found.append(Improvement(label, other, tuple(pairs), value, low, high))
    return found


def share_above(tasks: Sequence[np.ndarray], thresholds: np.ndarray = THRESHOLDS) -> np.ndarray:
    """F(tau) = 1/M sum_m 1/N_m sum_n 1[x_mn > tau], the run-score distribution (section 4.2 of the paper), of M arrays
    of returns of shape (..., N_m) at thresholds (T,): (..., T)."""
    return np.mean([(returns[..., None] > thresholds).mean(axis=-2) for returns in tasks], axis=0)


def probability_of_improvement(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> np.ndarray:
    """P(X > Y) = 1/M sum_m 1/(N_m K_m) sum_n sum_k S(x_mn, y_mk), where S is 1 if x > y, 1/2 if x = y, and else 0.

    This is the mean over tasks of Mann and Whitney's U / (N K) (section 4.3 of the paper), of M arrays of returns of
    shape (..., N_m) and M of shape (..., K_m): (...).
    """
    signs = [np.sign(x[..., :, None] - y[..., None, :]).mean(axis=(-2, -1)) for x, y in zip(first, second, strict=True)]
    return (1 + np.mean(signs, axis=0)) / 2


def _interval(resampled: np.ndarray, sides: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """Returns low and high of resampled values, (NUM_RESAMPLES, ...) -> (2, ...); NaN if a side has too few runs."""
    if all(has_interval([len(returns) for returns in tasks]) for tasks in sides):
        return np.percentile(resampled, [2.5, 97.5], axis=0)
    return np.full((2, *resampled.shape[1:]), np.nan)
