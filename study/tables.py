"""A study in numbers: every point as CSV, and a table of returns at common steps."""

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import EngFormatter

from study import statistics
from study.groups import Group
from study.statistics import Average
from study.summary import Study

MARKS = (100_000, 250_000, 500_000, 1_000_000)  # environment steps
BLANK = "-"
LEGEND = (
    "Returns of greedy evaluation episodes: per task the mean over runs, over tasks the interquartile mean (IQM) of "
    "all runs; in brackets its 95 % bootstrap interval, or the lowest and the highest of two or three runs of a task, "
    "which is none; nor is it one over tasks with two runs each. Final is the last evaluation of the longest runs that "
    "finished; (2/3) is over two runs of three. Equal time is when the task's fastest run ended, in minutes of "
    "training, without evaluations; it compares runs on equal machines."
)
IMPROVEMENT_LEGEND = (
    "P(X > Y) is the mean over tasks of the probability that a finished run of X ends higher than one of Y; a tie "
    "counts half. In brackets is its 95 % bootstrap interval, from three runs of each task (four of a single one)."
)
PROFILE_LEGEND = (
    "The performance profile is the share of finished runs, each task with the same weight, whose last return divided "
    "by 1000 is above tau; from three runs of each task on, it has a 95 % bootstrap band."
)
Table = list[tuple[str, ...]]  # rows of cells, the header first
format_steps = EngFormatter(sep="")  # 60000 -> 60k, 1000000 -> 1M


def tabulate(study: Study) -> Table:
    """Tabulates returns at the marks that any run reaches and at the end: a row per group, reference and average."""
    last_step = max((run.last_step for run in study.runs), default=0)
    marks = [mark for mark in MARKS if mark <= last_step]
    rows: Table = [("task", "agent", "runs", *map(format_steps, marks), "final", "at step", "equal time")]
    for task, groups in study.tasks.items():
        rows += [(task, group.label, *_cells([group], marks), _at_equal_time(group, groups)) for group in groups]
        end = max((run.length for group in groups for run in group.finished), default=0)
        for reference in study.references[task]:
            cells = [format_number(reference.at(mark)) for mark in marks]
            final = format_number(reference.at(end))
            at_step = BLANK if final == BLANK else format_steps(end)
            rows.append((task, reference.label, str(reference.num_seeds), *cells, final, at_step, BLANK))
    for overall in study.overall:
        rows.append((f"IQM of {len(overall.groups)} tasks", overall.label, *_cells(overall.groups, marks), BLANK))
    return rows


def tabulate_improvements(study: Study) -> Table:
    """Tabulates the probability of improvement: a row per pair of labels; empty if there is none."""
    rows: Table = [("X", "Y", "P(X > Y)", "tasks")] if study.improvements else []
    for pair in study.improvements:
        interval = "" if math.isnan(pair.low) else f" [{pair.low:.2f}, {pair.high:.2f}]"
        rows.append((pair.label, pair.other, f"{pair.value:.2f}{interval}", str(len(pair.tasks))))
    return rows


def choose_legends(study: Study) -> list[str]:
    """Returns the legends of what the study has."""
    legends = ((True, LEGEND), (study.improvements, IMPROVEMENT_LEGEND), (study.profiles, PROFILE_LEGEND))
    return [legend for shown, legend in legends if shown]


def write_markdown(study: Study) -> str:
    """Formats the tables and their notes as Markdown."""
    lines: list[str] = []
    for table in filter(None, (tabulate(study), tabulate_improvements(study))):
        header, *rows = [f"| {' | '.join(row)} |" for row in table]
        lines += [header, "| --- " * len(table[0]) + "|", *rows, ""]
    return "\n".join([*lines, *(f"{note}<br>" for note in (*choose_legends(study), *study.notes))]) + "\n"


def write_points(study: Study) -> str:
    """Formats every point of every curve over steps as CSV."""
    rows: list[tuple[Any, ...]] = [("task", "agent", "step", "value", "low", "high", "runs")]
    averages = [(group.task, group.label, group.average) for group in study.groups]
    averages += [(f"IQM of {len(each.groups)} tasks", each.label, each.average) for each in study.overall]
    for task, label, average in averages:
        points = (average.steps, average.value, average.low, average.high, average.num_runs)
        rows += [(task, label, *point) for point in zip(*points, strict=True)]
    for task, references in study.references.items():
        for reference in references:
            curve = zip(reference.steps, reference.returns, strict=True)
            rows += [(task, reference.label, *point, math.nan, math.nan, reference.num_seeds) for point in curve]
    file = io.StringIO()
    for row in rows:
        cells = [cell if isinstance(cell, str) else "" if math.isnan(cell) else f"{cell:.10g}" for cell in row]
        csv.writer(file, lineterminator="\n").writerow(cells)
    return file.getvalue()


def _cells(groups: Sequence[Group], marks: list[int]) -> list[str]:
    """Returns the number of runs, the score at each mark, and the final score and step, over one task or several."""
    runs = [run for group in groups for run in group.runs]
    finished = [run for run in runs if run.finished]
    cells = [str(len(runs)) if len(finished) == len(runs) else f"{len(finished)} of {len(runs)} finished"]
    curves = [[run.returns for run in group.runs] for group in groups]
    for mark in marks:
        cells.append(_format_score(statistics.average(curves, [mark]), len(runs)))
    if all(group.finished for group in groups):
        average = statistics.of_scores([[run.returns[1][-1] for run in group.longest] for group in groups])
        lengths = [run.length for group in groups for run in group.longest]
        return [*cells, _format_score(average, len(finished)), _format_range(lengths)]
    reached = _format_range([run.last_step for run in runs if run.last_step])
    return [*cells, BLANK, f"{reached} of {_format_range([run.length for run in runs])}"]


def _at_equal_time(group: Group, groups: Sequence[Group]) -> str:
    """Returns a group's score when the fastest finished run on its task ended; blank if there is nothing to compare."""
    curves = [run.returns_by_minute for each in groups for run in each.finished]
    if len(groups) < 2 or not (ends := [minutes[-1] for minutes, _ in curves if minutes]):
        return BLANK
    average = statistics.average([[run.returns_by_minute for run in group.runs]], [min(ends)])
    return f"{_format_score(average, len(group.runs))} at {format_number(min(ends))} min"


def _format_score(average: Average, num_runs: int) -> str:
    if not len(average.steps):
        return BLANK
    value, low, high, count = average.at_end
    interval = "" if math.isnan(low) else f" [{format_number(low)}, {format_number(high)}]"
    return f"{format_number(value)}{interval}" + (f" ({count}/{num_runs})" if count < num_runs else "")


def format_number(value: float) -> str:
    """Formats a return: one decimal below ten, none above."""
    if math.isnan(value):
        return BLANK
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}"


def _format_range(steps: list[int]) -> str:
    """Formats the range of some numbers of steps, such as 60k or 60k to 100k."""
    ends = sorted({min(steps, default=0), max(steps, default=0)})
    return " to ".join(map(format_steps, ends))
