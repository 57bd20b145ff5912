"""Summarises runs for figures, tables and the report, with published results and the styles of all curves."""

import csv
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from settings.env_ids import SUITE_TASKS
from study import profiles, statistics
from study.groups import Group, group_runs
from study.profiles import Improvement, Profile
from study.runs import Run
from study.statistics import Average

LineStyle = dict[str, Any]  # keywords of matplotlib
# Okabe and Ito's colours, which colour-blind readers can tell apart, without yellow (faint on white) and black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
GREYS = ("#000000", "#666666", "#999999")
# Lengths on and off in line widths: for the first six labels, the next six, ...
DASHES = ("-", (0, (6, 2)), (0, (8, 2, 2, 2)))
REFERENCE_DASHES = ((0, (4, 2)), (0, (6, 2, 1, 2)), (0, (10, 3)))
FEWER_RUNS = (0, (1, 2))  # for steps that not all runs of a group have reached
FOLDER = Path(__file__).resolve().parent / "published"  # sources: benchmarks/references/README.md
SUITE, PIXELS = FOLDER / "suite.csv", FOLDER / "pixels.csv"  # from state, from pixels


@dataclass(frozen=True)
class Reference:
    """A published curve on one task: mean returns over `num_seeds` seeds at rising environment steps."""

    label: str
    steps: tuple[float, ...]
    returns: tuple[float, ...]
    num_seeds: int

    def at(self, step: float) -> float:
        """Interpolates the return linearly at a step; NaN before the first and after the last published step."""
        return float(np.interp(step, self.steps, self.returns, left=np.nan, right=np.nan))

    def until(self, last_step: float) -> "Reference":
        """Returns the curve up to a step, to be drawn beside curves that end there."""
        steps = [step for step in self.steps if step < last_step]
        steps += [last_step] if self.steps[0] <= last_step <= self.steps[-1] else []
        return Reference(self.label, tuple(steps), tuple(map(self.at, steps)), self.num_seeds)


@cache
def published(path: Path) -> dict[str, list[Reference]]:
    """Reads SUITE or PIXELS: references by task, methods in the order of the file."""
    rows: dict[tuple[str, str], list[dict[str, str]]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows.setdefault((row["method"], row["task"]), []).append(row)
    references: dict[str, list[Reference]] = {}
    for (method, task), points in rows.items():
        steps, returns = (tuple(float(point[name]) for point in points) for name in ("step", "return"))
        curve = Reference(f"published: {method}", steps, returns, int(points[0]["seeds"]))
        references.setdefault(task, []).append(curve)
    return references


def choose_styles(labels: Sequence[str], methods: Sequence[str]) -> dict[str, LineStyle]:
    """Assigns a style to each label of the runs, and a grey one to each published method."""
    coloured = [{"color": colour, "linestyle": dash} for dash in DASHES for colour in COLOURS]
    grey = [{"color": colour, "linestyle": dash} for colour, dash in zip(GREYS, REFERENCE_DASHES, strict=True)]
    styles = dict(zip(labels, itertools.cycle(coloured), strict=False))
    return styles | dict(zip(methods, itertools.cycle(grey), strict=False))


@dataclass(frozen=True)
class OverallAverage:
    """The interquartile mean of one label over its suite tasks."""

    label: str
    groups: tuple[Group, ...]
    average: Average


@dataclass(frozen=True)
class Study:
    """The summary of several runs."""

    runs: tuple[Run, ...]
    tasks: dict[str, list[Group]]
    overall: list[OverallAverage]  # of labels with at least two suite tasks
    profiles: list[Profile]  # if all tasks are the suite's
    improvements: list[Improvement]  # of each pair of labels
    references: dict[str, list[Reference]]  # by task, up to the last step of the runs; if they were asked for
    notes: list[str]

    @property
    def groups(self) -> list[Group]:
        return [group for groups in self.tasks.values() for group in groups]

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(group.label for group in self.groups))

    @cached_property
    def styles(self) -> dict[str, LineStyle]:
        """The style of each label's curve; the references come last."""
        methods = dict.fromkeys(reference.label for curves in self.references.values() for reference in curves)
        return choose_styles(self.labels, list(methods))


def summarise(runs: Sequence[Run], with_references: bool) -> Study:
    groups = group_runs(runs)
    tasks: dict[str, list[Group]] = {}
    for group in groups:
        tasks.setdefault(group.task, []).append(group)
    overall = _average_over_tasks(groups)
    ends = profiles.final_returns(groups)
    of_labels = profiles.performance_profiles(ends) if tasks.keys() <= SUITE_TASKS.keys() else []
    published = {task: _find_published(task, tasks[task]) if with_references else [] for task in tasks}
    notes = _make_notes(runs, tasks, overall, of_labels)
    if with_references and (missing := [task for task, curves in published.items() if not curves]):
        notes.append(f"There is no published result, up to the last step of the runs, for {', '.join(missing)}.")
    return Study(tuple(runs), tasks, overall, of_labels, profiles.improvements(ends), published, notes)


def _find_published(task: str, groups: list[Group]) -> list[Reference]:
    """Returns the published curves up to the last step of the runs."""
    runs = [run for group in groups for run in group.runs]
    files = {PIXELS if run.config.get("from_pixels") else SUITE for run in runs}
    curves = [curve for file in sorted(files) for curve in published(file).get(task, [])]
    return [until for curve in curves if (until := curve.until(max(run.last_step for run in runs))).steps]


def _average_over_tasks(groups: list[Group]) -> list[OverallAverage]:
    by_label: dict[str, list[Group]] = {}
    for group in groups:
        if group.task in SUITE_TASKS and len(group.average.steps):
            by_label.setdefault(group.label, []).append(group)
    averages = []
    for label, members in by_label.items():
        if len(members) > 1:
            curves = [[run.returns for run in group.runs] for group in members]
            averages.append(OverallAverage(label, tuple(members), statistics.average(curves)))
    return averages


def _make_notes(
    runs: Sequence[Run], tasks: dict[str, list[Group]], overall: list[OverallAverage], of_labels: list[Profile]
) -> list[str]:
    """Says what makes the runs' numbers incomparable."""
    notes = []
    others = [task for task in tasks if task not in SUITE_TASKS]
    if others and overall:
        notes.append(f"The interquartile mean leaves out {', '.join(others)}: not on the suite's scale, up to 1000.")
    averaged = {tuple(group.task for group in average.groups) for average in overall}
    if len(averaged) > 1 or len({profile.tasks for profile in of_labels}) > 1:
        notes.append("Labels differ in the tasks that they are averaged over: do not compare their averages.")
    lengths = {task: {run.length for group in groups for run in group.finished} for task, groups in tasks.items()}
    if mixed := [task for task, of_task in lengths.items() if len(of_task) > 1]:
        notes.append(f"Runs of {', '.join(mixed)} have different lengths: final returns are those of the longest runs.")
    if unfinished := sum(not run.finished for run in runs):
        notes.append(
            f"{unfinished} of {len(runs)} runs are unfinished: still going on, or crashed. "
            "A cross is where one ends; what is averaged over fewer runs than the group has is dotted."
        )
    return notes
