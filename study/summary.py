"""Groups of runs in, a study out: what figures, tables and the report show."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from study import references, statistics
from study.groups import Group, group
from study.references import Reference
from study.runs import Run
from study.statistics import Average


@dataclass(frozen=True)
class Line:
    """One group's average."""

    group: Group
    average: Average

    @property
    def finished(self) -> list[Run]:
        return [run for run in self.group.runs if run.finished]


@dataclass(frozen=True)
class Overall:
    """One label's interquartile mean over its suite tasks."""

    label: str
    lines: tuple[Line, ...]
    average: Average


@dataclass(frozen=True)
class Study:
    """Everything that is shown.

    Attributes:
        tasks: the groups' averages by task.
        overall: over tasks; of labels with two suite tasks or more.
        references: published curves by task, up to the last step of ours.
        notes: what a reader has to know, a line each.
    """

    runs: tuple[Run, ...]
    tasks: dict[str, list[Line]]
    overall: list[Overall]
    references: dict[str, list[Reference]]
    notes: list[str]

    @property
    def any_evaluation(self) -> bool:
        return any(run.last_step for run in self.runs)

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(line.group.label for lines in self.tasks.values() for line in lines))

    @property
    def methods(self) -> list[str]:
        """Labels of the references that are there."""
        return list(dict.fromkeys(found.label for task in self.tasks for found in self.references.get(task, [])))


def summarise(runs: Sequence[Run], with_references: bool) -> Study:
    """Groups and averages runs."""
    tasks: dict[str, list[Line]] = {}
    for one in group(runs):
        average = statistics.mean([run.returns for run in one.runs])
        tasks.setdefault(one.task, []).append(Line(one, average))
    published: dict[str, list[Reference]] = {}
    for task, lines in tasks.items() if with_references else ():
        ours = [run for line in lines for run in line.group.runs]
        last_step = max(run.last_step for run in ours)
        files = {references.PIXELS if run.from_pixels else references.SUITE for run in ours}
        found = [one for file in sorted(files) for one in references.published(file).get(task, [])]
        shown = [one.until(last_step) for one in found]
        published[task] = [one for one in shown if one.steps]
    overall = _overall(tasks)
    return Study(tuple(runs), tasks, overall, published, _notes(runs, tasks, overall))


def is_suite_task(task: str) -> bool:
    """Whether returns lie in [0, 1000]: on the control suite they do, in Gymnasium (`<name>-v<number>`) anywhere."""
    return re.search(r"-v\d+$", task) is None


def _overall(tasks: dict[str, list[Line]]) -> list[Overall]:
    by_label: dict[str, list[Line]] = {}
    for task, lines in tasks.items():
        for line in lines:
            if is_suite_task(task) and len(line.average.steps):
                by_label.setdefault(line.group.label, []).append(line)
    return [
        Overall(
            label,
            tuple(lines),
            statistics.interquartile_mean([[run.returns for run in line.group.runs] for line in lines]),
        )
        for label, lines in by_label.items()
        if len(lines) > 1
    ]


def _notes(runs: Sequence[Run], tasks: dict[str, list[Line]], overall: list[Overall]) -> list[str]:
    notes = []
    others = [task for task in tasks if not is_suite_task(task)]
    if others and overall:
        notes.append(
            f"The interquartile mean leaves out {', '.join(others)}: not on the suite's scale, returns up to 1000."
        )
    if len({len(one.lines) for one in overall}) > 1:
        notes.append("The interquartile means are over different numbers of tasks: do not compare them.")
    unfinished = [run for run in runs if not run.finished]
    if unfinished:
        notes.append(
            f"{len(unfinished)} of {len(runs)} runs are unfinished: still going on, or crashed. "
            "A cross is where one ends; what is averaged over fewer runs than the group has is dotted."
        )
    if len(runs) > 1 and any(len(line.group.runs) == 1 for lines in tasks.values() for line in lines):
        notes.append("A group of one run has no interval.")
    return notes
