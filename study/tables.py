"""A study in numbers: every point as CSV, the usual steps as a table."""

import csv
import io
import math
from dataclasses import dataclass

from study import statistics
from study.statistics import Average
from study.summary import Line, Study

MARKS = (100_000, 250_000, 500_000, 1_000_000)  # environment steps
BLANK = "-"


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(study: Study) -> Table:
    """Returns at the marks that any run reaches, and at the end: a row a group, a published method and a study."""
    last_step = max((run.last_step for run in study.runs), default=0)
    marks = [mark for mark in MARKS if mark <= last_step]
    rows = []
    for task, lines in study.tasks.items():
        rows += [(task, line.group.label, *_cells([line], marks)) for line in lines]
        ends = [run.length for line in lines for run in line.finished]
        for found in study.references.get(task, []):
            end = max(ends, default=0)
            cells = [number_text(found.at(mark)) for mark in marks]
            final = (
                (number_text(found.at(end)), _steps([end]))
                if found.steps[0] <= end <= found.steps[-1]
                else (BLANK, BLANK)
            )
            rows.append((task, found.label, str(found.num_seeds), *cells, *final))
    for one in study.overall:
        rows.append((f"IQM of {len(one.lines)} tasks", one.label, *_cells(list(one.lines), marks)))
    return Table(("task", "agent", "runs", *map(steps_text, marks), "final", "at step"), tuple(rows))


def markdown(study: Study) -> str:
    """The table and what to know of it."""
    shown = table(study)
    lines = [
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in (shown.columns, *shown.rows)
    ]
    lines.insert(1, "| --- " * len(shown.columns) + "|")
    return "\n".join([*lines, "", *(f"{note}<br>" for note in (LEGEND, *study.notes))]) + "\n"


LEGEND = (
    "Returns of greedy evaluation episodes: per task the mean over runs, over tasks the interquartile mean (IQM) of "
    "all runs; in brackets its 95 % bootstrap interval. Between two evaluations a run is taken to be linear. "
    "Final is the last evaluation of the runs that finished; (2/3) is over two runs of three."
)


def points(study: Study) -> str:
    """Every point of every curve, as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["task", "agent", "step", "value", "low", "high", "runs"])
    for task, lines in study.tasks.items():
        for line in lines:
            writer.writerows(_points(task, line.group.label, line.average))
        for found in study.references.get(task, []):
            for step, value in zip(found.steps, found.returns, strict=True):
                writer.writerow([task, found.label, f"{step:.0f}", f"{value:.6g}", "", "", found.num_seeds])
    for one in study.overall:
        writer.writerows(_points(f"IQM of {len(one.lines)} tasks", one.label, one.average))
    return buffer.getvalue()


def _points(task: str, label: str, average: Average) -> list[list[str]]:
    columns = (average.steps, average.value, average.low, average.high, average.num_runs)
    return [
        [task, label, f"{step:.0f}", *("" if math.isnan(number) else f"{number:.6g}" for number in numbers), str(runs)]
        for step, *numbers, runs in zip(*columns, strict=True)
    ]


def _cells(lines: list[Line], marks: list[int]) -> list[str]:
    """Runs, a score a mark, the final score and its step, over one line or the lines of several tasks."""
    runs = [run for line in lines for run in line.group.runs]
    finished = [run for run in runs if run.finished]
    cells = [str(len(runs)) if len(finished) == len(runs) else f"{len(finished)} of {len(runs)} finished"]
    for mark in marks:
        curves = [[run.returns for run in line.group.runs] for line in lines]
        average = (
            statistics.mean(curves[0], [mark]) if len(lines) == 1 else statistics.interquartile_mean(curves, [mark])
        )
        cells.append(_score(average, len(runs)))
    if all(line.finished for line in lines):
        average = statistics.of_scores([[run.returns[1][-1] for run in line.finished] for line in lines])
        return [*cells, _score(average, len(finished)), _steps([run.length for run in finished])]
    started = [run for run in runs if run.last_step]
    return [*cells, BLANK, f"{_steps([run.last_step for run in started])} of {_steps([run.length for run in runs])}"]


def _score(average: Average, num_runs: int) -> str:
    if not len(average.steps):
        return BLANK
    value, low, high, here = average.at_end
    text = number_text(value) if math.isnan(low) else f"{number_text(value)} [{number_text(low)}, {number_text(high)}]"
    return text if here == num_runs else f"{text} ({here}/{num_runs})"


def number_text(value: float) -> str:
    """A return: whole numbers, one decimal below ten."""
    if math.isnan(value):
        return BLANK
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}"


def _steps(steps: list[int]) -> str:
    """The range of some numbers of steps: 60k, or 60k to 100k."""
    ends = sorted({min(steps, default=0), max(steps, default=0)})
    return " to ".join(map(steps_text, ends))


def steps_text(steps: float) -> str:
    """60000 -> 60k, 1000000 -> 1M."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if steps >= size:
            return f"{steps / size:.4g}{unit}"
    return f"{steps:.0f}"
