"""A study in numbers: every point as CSV, and a table of returns at common steps."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from study import statistics
from study.groups import Group
from study.profiles import TAUS
from study.statistics import Average
from study.summary import Study

MARKS = (100_000, 250_000, 500_000, 1_000_000)  # environment steps
BLANK = "-"
LEGEND = (
    "Returns of greedy evaluation episodes: per task the mean over runs, over tasks the interquartile mean (IQM) of "
    "all runs; in brackets its 95 % bootstrap interval. With two or three runs of a task, brackets are the lowest and "
    "the highest run; over tasks with two runs each they are too narrow: neither is a 95 % interval. Between two "
    "evaluations a run is taken to be linear. Final is the last evaluation of the longest runs that finished; (2/3) is "
    "over two runs of three."
)

IMPROVEMENT_LEGEND = (
    "P(X > Y) is the mean over tasks of the probability that a finished run of X ends higher than one of Y; a tie "
    "counts half. In brackets is its 95 % bootstrap interval, from three runs of each task (four of a single one). If "
    "all runs of X end higher, so do all resamples: [1.00, 1.00] is no certainty."
)
PROFILE_LEGEND = (
    "The performance profile is the share of finished runs, each task with the same weight, whose last return divided "
    "by 1000 is above tau; from three runs of each task on, it has a 95 % bootstrap band."
)


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(study: Study) -> Table:
    """Tabulates returns at the marks that any run reaches and at the end: a row per group, reference and average."""
    last_step = max((run.last_step for run in study.runs), default=0)
    marks = [mark for mark in MARKS if mark <= last_step]
    rows = []
    for task, groups in study.tasks.items():
        rows += [(task, group.label, *_cells([group], marks)) for group in groups]
        end = max((run.length for group in groups for run in group.finished), default=0)
        for reference in study.references[task]:
            cells = [number_text(reference.at(mark)) for mark in marks]
            covers_end = reference.steps[0] <= end <= reference.steps[-1]
            final = (number_text(reference.at(end)), _range_text([end])) if covers_end else (BLANK, BLANK)
            rows.append((task, reference.label, str(reference.num_seeds), *cells, *final))
    for overall in study.overall:
        rows.append((f"IQM of {len(overall.groups)} tasks", overall.label, *_cells(overall.groups, marks)))
    return Table(("task", "agent", "runs", *map(steps_text, marks), "final", "at step"), tuple(rows))


def improvements(study: Study) -> Table:
    """Tabulates the probability of improvement: a row per pair of labels."""
    rows = []
    for pair in study.improvements:
        interval = "" if math.isnan(pair.low) else f" [{pair.low:.2f}, {pair.high:.2f}]"
        rows.append((pair.label, pair.other, f"{pair.value:.2f}{interval}", str(len(pair.tasks))))
    return Table(("X", "Y", "P(X > Y)", "tasks"), tuple(rows))


def comparison_legends(study: Study) -> list[str]:
    """Returns the legends of the probabilities of improvement and of the profiles, if the study has any."""
    legends = ((study.improvements, IMPROVEMENT_LEGEND), (study.profiles, PROFILE_LEGEND))
    return [legend for shown, legend in legends if shown]


def markdown(study: Study) -> str:
    """Formats the tables and their notes as Markdown."""
    lines = _markdown_lines(table(study))
    if study.improvements:
        lines += ["", *_markdown_lines(improvements(study))]
    notes = (LEGEND, *comparison_legends(study), *study.notes)
    return "\n".join([*lines, "", *(f"{note}<br>" for note in notes)]) + "\n"


def _markdown_lines(shown: Table) -> list[str]:
    rows = [[cell.replace("|", "\\|") for cell in row] for row in (shown.columns, *shown.rows)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "| --- " * len(shown.columns) + "|")
    return lines


def points(study: Study) -> str:
    """Formats every point of every curve over steps as CSV."""
    rows: list[list[str]] = []
    for task, groups in study.tasks.items():
        for group in groups:
            rows += _points(task, group.label, group.average)
        for reference in study.references[task]:
            for step, value in zip(reference.steps, reference.returns, strict=True):
                rows.append([task, reference.label, f"{step:.0f}", f"{value:.6g}", "", "", str(reference.num_seeds)])
    for overall in study.overall:
        rows += _points(f"IQM of {len(overall.groups)} tasks", overall.label, overall.average)
    return _csv(["task", "agent", "step", "value", "low", "high", "runs"], rows)


def profile_points(study: Study) -> str:
    """Formats every point of the performance profiles as CSV."""
    rows = [
        [profile.label, str(len(profile.tasks)), *map(_csv_number, numbers)]
        for profile in study.profiles
        for numbers in zip(TAUS, profile.value, profile.low, profile.high, strict=True)
    ]
    return _csv(["agent", "tasks", "tau", "value", "low", "high"], rows)


def improvement_rows(study: Study) -> str:
    """Formats the probabilities of improvement as CSV."""
    rows = [
        [pair.label, pair.other, str(len(pair.tasks)), *map(_csv_number, (pair.value, pair.low, pair.high))]
        for pair in study.improvements
    ]
    return _csv(["agent", "other", "tasks", "probability", "low", "high"], rows)


def _csv(columns: list[str], rows: list[list[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([columns, *rows])
    return buffer.getvalue()


def _csv_number(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.6g}"


def _points(task: str, label: str, average: Average) -> list[list[str]]:
    columns = (average.steps, average.value, average.low, average.high, average.num_runs)
    return [
        [task, label, f"{step:.0f}", *map(_csv_number, numbers), str(runs)]
        for step, *numbers, runs in zip(*columns, strict=True)
    ]


def _cells(groups: Sequence[Group], marks: list[int]) -> list[str]:
    """Returns the number of runs, the score at each mark, and the final score and step, over one task or several."""
    runs = [run for group in groups for run in group.runs]
    finished = [run for run in runs if run.finished]
    cells = [str(len(runs)) if len(finished) == len(runs) else f"{len(finished)} of {len(runs)} finished"]
    curves = [[run.returns for run in group.runs] for group in groups]
    for mark in marks:
        one_task = len(groups) == 1
        average = statistics.mean(curves[0], [mark]) if one_task else statistics.interquartile_mean(curves, [mark])
        cells.append(_score(average, len(runs)))
    if all(group.finished for group in groups):
        average = statistics.of_scores([[run.returns[1][-1] for run in group.longest] for group in groups])
        lengths = [run.length for group in groups for run in group.longest]
        return [*cells, _score(average, len(finished)), _range_text(lengths)]
    reached = _range_text([run.last_step for run in runs if run.last_step])
    return [*cells, BLANK, f"{reached} of {_range_text([run.length for run in runs])}"]


def _score(average: Average, num_runs: int) -> str:
    if not len(average.steps):
        return BLANK
    value, low, high, count = average.at_end
    text = number_text(value) if math.isnan(low) else f"{number_text(value)} [{number_text(low)}, {number_text(high)}]"
    return text if count == num_runs else f"{text} ({count}/{num_runs})"


def number_text(value: float) -> str:
    """Formats a return: one decimal below ten, none above."""
    if math.isnan(value):
        return BLANK
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}"


def _range_text(steps: list[int]) -> str:
    """Formats the range of some numbers of steps, such as 60k or 60k to 100k."""
    ends = sorted({min(steps, default=0), max(steps, default=0)})
    return " to ".join(map(steps_text, ends))


def steps_text(steps: float) -> str:
    """Formats a number of steps: 60000 -> 60k, 1000000 -> 1M."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if steps >= size:
            return f"{steps / size:.4g}{unit}"
    return f"{steps:.0f}"
