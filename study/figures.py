"""A study's figures: the tasks in a grid, and the interquartile mean over them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from study import style
from study.references import Reference
from study.statistics import Average
from study.style import Look
from study.summary import Line, Study, is_suite_task

COLUMNS = 4  # panels side by side, as in the literature


def save(figure: Figure, path: Path) -> list[Path]:
    """Writes `<path>.png` and `<path>.svg`, the same bytes for the same figure."""
    targets = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    with matplotlib.rc_context({"svg.hashsalt": "study"}):
        for target in targets:
            metadata: dict[str, Any] = {"Date": None} if target.suffix == ".svg" else {"Software": None}
            figure.savefig(target, dpi=120, metadata=metadata, bbox_inches="tight")  # legends may be wider
    return targets


def grid(num_panels: int, width: float = 3.4, height: float = 2.7) -> tuple[Figure, list[Axes]]:
    """A figure with that many panels in rows of four."""
    num_columns = max(1, min(COLUMNS, num_panels))
    num_rows = -(-num_panels // num_columns)
    figure = Figure(figsize=(max(width * num_columns, 4.4), height * num_rows + 0.5), layout="constrained")
    panels = list(figure.subplots(num_rows, num_columns, squeeze=False).flat)
    for unused in panels[num_panels:]:
        unused.axis("off")
    return figure, panels[:num_panels]


def dress(panel: Axes, title: str, unit: str = "") -> None:
    """Title, axes with their units, a grid."""
    panel.set(title=title, xlabel="environment steps", ylabel=unit)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.grid(alpha=0.3)


def draw_tasks(study: Study) -> Figure:
    """A panel a task: each group's mean with its interval, unfinished runs with their ends, published curves."""
    looks, theirs = style.of_labels(study.labels), style.of_references(study.methods)
    figure, panels = grid(len(study.tasks))
    for place, (panel, (task, lines)) in enumerate(zip(panels, study.tasks.items(), strict=True)):
        for found in study.references.get(task, []):
            draw_reference(panel, found, theirs[found.label])
        for line in lines:
            _draw_line(panel, line, looks[line.group.label])
        dress(panel, task, "return" if place % COLUMNS == 0 else "")
        panel.set_xlim(left=0)
        if is_suite_task(task):
            panel.set_ylim(bottom=0)
        if not any(line.average.steps.size for line in lines):
            panel.text(0.5, 0.5, "no evaluation yet", transform=panel.transAxes, ha="center")
    handles = _handles(looks) + _handles(theirs)
    if any(line.average.fewer.any() for lines in study.tasks.values() for line in lines):
        handles.append(Line2D([], [], color="black", linestyle=(0, style.FEWER_RUNS), label="not all runs got there"))
    if any(not run.finished and run.last_step for run in study.runs):
        handles.append(Line2D([], [], color="black", marker="x", linestyle="", label="an unfinished run's end"))
    _legend(figure, handles)
    return figure


def draw_overall(study: Study) -> Figure:
    """The interquartile mean over tasks, a line a label."""
    labels = [one.label for one in study.overall]
    looks = {label: seen for label, seen in style.of_labels(study.labels).items() if label in labels}
    figure, (panel,) = grid(1, width=5.2, height=3.6)
    for one in study.overall:
        _draw_average(panel, one.average, looks[one.label])
    counts = " to ".join(str(count) for count in sorted({len(one.lines) for one in study.overall}))
    dress(panel, f"{counts} tasks", "interquartile mean of returns")
    _legend(figure, _handles(looks))
    return figure


def draw_reference(panel: Axes, found: Reference, seen: Look) -> None:
    """A published curve; a single point gets a marker, or it would not be seen."""
    marker = "" if len(found.steps) > 1 else "D"
    panel.plot(
        *(found.steps, found.returns),
        color=seen.colour,
        linestyle=(0, seen.dash),
        linewidth=1.1,
        marker=marker,
        markersize=4,
        label=found.label,
    )


def _draw_line(panel: Axes, line: Line, seen: Look) -> None:
    _draw_average(panel, line.average, seen)
    for run in line.group.runs:
        steps, values = run.returns
        if steps and not run.finished:
            panel.plot(steps, values, color=seen.colour, linewidth=0.6, alpha=0.6)
            panel.plot(steps[-1], values[-1], color=seen.colour, marker="x", markersize=6)


def _draw_average(panel: Axes, average: Average, seen: Look) -> None:
    fewer = average.fewer
    panel.fill_between(average.steps, average.low, average.high, color=seen.colour, alpha=0.18, linewidth=0)
    marker = "o" if len(average.steps) <= 20 else ""
    around = np.pad(fewer, 1)
    beside = around[:-2] | fewer | around[2:]  # a dotted part begins at the solid one
    for part, dash in ((~fewer, seen.dash), (beside, style.FEWER_RUNS)):
        if part.any():
            shown = np.where(part, average.value, np.nan)
            line = (0, dash) if dash else "-"
            panel.plot(
                average.steps, shown, color=seen.colour, linestyle=line, linewidth=1.6, marker=marker, markersize=2.5
            )


def _handles(looks: dict[str, Look]) -> list[Line2D]:
    return [
        Line2D([], [], color=seen.colour, linestyle=(0, seen.dash) if seen.dash else "-", label=label)
        for label, seen in looks.items()
    ]


def _legend(figure: Figure, handles: Sequence[Line2D]) -> None:
    columns = 1 if figure.get_figwidth() < 6 else 3
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
