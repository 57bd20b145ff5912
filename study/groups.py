"""Groups runs that repeat one experiment: equal task, agent, and settings that influence training."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from settings.keys import SEEDS_AND_SHAPES, matches, settings_that_matter
from study import statistics
from study.runs import Run
from study.statistics import Average
from utils import dotted

FROM_TASK = ("env", "logger.*", *SEEDS_AND_SHAPES)
MAX_NAMED_KEYS = 3  # in a label
ABSENT = "absent"


@dataclass(frozen=True)
class Group:
    """Repetitions of one experiment on one task."""

    label: str  # the agent's name, and the settings in which it differs from other groups of that agent
    task: str
    runs: tuple[Run, ...]  # sorted by seed

    @property
    def finished(self) -> list[Run]:
        return [run for run in self.runs if run.finished]

    @property
    def longest(self) -> list[Run]:
        """The finished runs that are as long as the longest of them, whose final returns can be averaged."""
        length = max((run.length for run in self.finished), default=0)
        return [run for run in self.finished if run.length == length]

    @cached_property
    def average(self) -> Average:
        return statistics.average([[run.returns for run in self.runs]])

    @cached_property
    def average_by_minute(self) -> Average:
        return statistics.average([[run.returns_by_minute for run in self.runs]])


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups runs by task, agent and differing settings; sorted by task, then by the first use of their labels."""
    labels: dict[Path, str] = {}
    for agent in dict.fromkeys(run.agent for run in runs):
        labels |= _choose_labels(agent, [run for run in runs if run.agent == agent])
    members: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        members.setdefault((run.task, labels[run.folder]), []).append(run)
    order = list(dict.fromkeys(labels[run.folder] for run in runs))
    return [
        Group(label, task, tuple(sorted(members[task, label], key=lambda run: (run.seed, run.folder))))
        for task, label in sorted(members, key=lambda key: (key[0], order.index(key[1])))
    ]


def differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Returns each key, except seeds and shapes, whose value differs between runs, with its value in each run."""
    differing = _differing([dotted(run.config) for run in runs])
    return {key: values for key, values in differing.items() if not matches(key, FROM_TASK)}


def _choose_labels(agent: str, runs: Sequence[Run]) -> dict[Path, str]:
    differing = _differing([settings_that_matter(dotted(run.config), run.length) for run in runs])
    first_keys: dict[tuple[str, ...], str] = {}  # a label names only the first of keys with equal values in all runs
    for key, values in differing.items():
        shown = tuple(map(repr, values))
        tasks = {(run.task, value) for run, value in zip(runs, shown, strict=True)}
        if len(tasks) > len({run.task for run in runs}):  # otherwise it follows from the task, as action_repeat may
            first_keys.setdefault(shown, key)
    keys = list(first_keys.values())
    # More keys would make a label unreadable; a number distinguishes the groups, and the report shows the differences.
    combinations = list(dict.fromkeys(zip(*first_keys, strict=True)))
    labels = {}
    for index, run in enumerate(runs):
        words = [f"{_shorten(key, keys)}={differing[key][index]}" for key in keys[:MAX_NAMED_KEYS]]
        if len(keys) > MAX_NAMED_KEYS:
            number = combinations.index(tuple(values[index] for values in first_keys)) + 1
            words.append(f"{len(keys) - MAX_NAMED_KEYS} more ({number})")
        labels[run.folder] = ", ".join([agent, *words])
    return labels


def _differing(settings: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Returns each key that differs between configurations, with its value in each of them."""
    keys = dict.fromkeys(key for values in settings for key in values)
    columns = {key: [values.get(key, ABSENT) for values in settings] for key in keys}
    return {key: values for key, values in columns.items() if len(set(map(repr, values))) > 1}


def _shorten(key: str, keys: Sequence[str]) -> str:
    """`agent.actor_lr` -> `actor_lr`, unless another key has the same last part."""
    last = key.rsplit(".", 1)[-1]
    return last if sum(other.rsplit(".", 1)[-1] == last for other in keys) == 1 else key
