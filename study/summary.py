"""Summarises runs for figures, tables and the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from envs.names import SUITE_TASKS
from study import profiles, references, statistics, style
from study.groups import Group, group_runs
from study.profiles import Improvement, Profile
from study.references import Reference
from study.runs import Run
from study.statistics import Average
from study.style import LineStyle


@dataclass(frozen=True)
class OverallAverage:
    """The interquartile mean of one label over its suite tasks."""

    label: str
    groups: tuple[Group, ...]
    average: Average


@dataclass(frozen=True)
class Study:
    """The summary of several runs.

    Attributes:
        tasks: the groups by task.
        overall: averages over tasks, of labels with at least two suite tasks.
        profiles: performance profiles, if all tasks are the suite's.
        improvements: the probability of improvement of each pair of labels.
        references: published curves by task, up to the last step of the runs; empty lists if none were asked for.
    """

    runs: tuple[Run, ...]
    tasks: dict[str, list[Group]]
    overall: list[OverallAverage]
    profiles: list[Profile]
    improvements: list[Improvement]
    references: dict[str, list[Reference]]
    notes: list[str]

    @property
    def groups(self) -> list[Group]:
        return [group for groups in self.tasks.values() for group in groups]

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(group.label for group in self.groups))

    @property
    def methods(self) -> list[str]:
        """The labels of the references."""
        return list(dict.fromkeys(reference.label for curves in self.references.values() for reference in curves))

    @cached_property
    def styles(self) -> dict[str, LineStyle]:
        """The style of each label's curve; the references come last."""
        return style.of_labels(self.labels) | style.of_references(self.methods)

    @property
    def num_overall_tasks(self) -> str:
        """The numbers of tasks that the overall averages are over, such as `3` or `2 to 3`."""
        return _range_text([len(overall.groups) for overall in self.overall])

    @property
    def num_profile_tasks(self) -> str:
        """The numbers of tasks that the performance profiles are over."""
        return _range_text([len(profile.tasks) for profile in self.profiles])


def summarise(runs: Sequence[Run], with_references: bool) -> Study:
    """Groups and averages runs."""
    groups = group_runs(runs)
    tasks: dict[str, list[Group]] = {}
    for group in groups:
        tasks.setdefault(group.task, []).append(group)
    overall = _overall(groups)
    notes = _notes(runs, groups, overall)
    published: dict[str, list[Reference]] = {task: [] for task in tasks}
    for task in tasks if with_references else ():
        published[task], missing = _published(task, tasks[task])
        notes += missing
    ends = profiles.final_returns(groups)
    of_labels = profiles.performance_profiles(ends) if all(map(is_suite_task, tasks)) else []
    if len({profile.tasks for profile in of_labels}) > 1:
        notes.append("The performance profiles are over different tasks: do not compare them.")
    return Study(tuple(runs), tasks, overall, of_labels, profiles.improvements(ends), published, notes)


def _range_text(counts: Sequence[int]) -> str:
    return " to ".join(str(count) for count in sorted(set(counts)))


def is_suite_task(task: str) -> bool:
    """Returns whether returns are in [0, 1000], as in the suite; elsewhere they can be any."""
    return task in SUITE_TASKS


def _published(task: str, groups: list[Group]) -> tuple[list[Reference], list[str]]:
    """Returns the published curves up to the last step of the runs, and a note if there are none."""
    runs = [run for group in groups for run in group.runs]
    last_step = max(run.last_step for run in runs)
    files = {references.PIXELS if run.from_pixels else references.SUITE for run in runs}
    curves = [curve for file in sorted(files) for curve in references.published(file).get(task, [])]
    if shown := [until for curve in curves if (until := curve.until(last_step)).steps]:
        return shown, []
    reason = "there is no published result for it"
    if curves:
        first = min(curve.steps[0] for curve in curves)
        reason = f"published results begin at step {first:.0f}, and runs end at {last_step}"
    return [], [f"--reference adds nothing to {task}: {reason}."]


def _overall(groups: list[Group]) -> list[OverallAverage]:
    by_label: dict[str, list[Group]] = {}
    for group in groups:
        if is_suite_task(group.task) and len(group.average.steps):
            by_label.setdefault(group.label, []).append(group)
    averages = []
    for label, members in by_label.items():
        if len(members) > 1:
            curves = [[run.returns for run in group.runs] for group in members]
            averages.append(OverallAverage(label, tuple(members), statistics.interquartile_mean(curves)))
    return averages


def _notes(runs: Sequence[Run], groups: list[Group], overall: list[OverallAverage]) -> list[str]:
    notes = []
    tasks = list(dict.fromkeys(group.task for group in groups))
    others = [task for task in tasks if not is_suite_task(task)]
    if others and overall:
        notes.append(
            f"The interquartile mean leaves out {', '.join(others)}: not on the suite's scale, returns up to 1000."
        )
    if len({tuple(group.task for group in average.groups) for average in overall}) > 1:
        notes.append("The interquartile means are over different tasks: do not compare them.")
    lengths = {task: {run.length for group in groups if group.task == task for run in group.finished} for task in tasks}
    if mixed := [task for task, of_task in lengths.items() if len(of_task) > 1]:
        notes.append(
            f"Runs of {', '.join(mixed)} have different lengths: final returns are those of a group's longest runs, "
            "and comparable only between groups whose step is the same."
        )
    if repeated := [f"{group.task}, {group.label}" for group in groups if group.repeats_seeds]:
        notes.append(f"Runs of one seed are not independent, and intervals too narrow: {'; '.join(repeated)}.")
    unfinished = [run for run in runs if not run.finished]
    if unfinished:
        notes.append(
            f"{len(unfinished)} of {len(runs)} runs are unfinished: still going on, or crashed. "
            "A cross is where one ends; what is averaged over fewer runs than the group has is dotted."
        )
    if len(runs) > 1 and any(len(group.runs) == 1 for group in groups):
        notes.append("A group of one run has no interval.")
    return notes
