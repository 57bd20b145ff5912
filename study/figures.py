"""Draws a study's figures, and the curves of one run. A study has its tasks in a grid, and over tasks the
interquartile mean and performance profiles."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import EngFormatter

from files.writing import NewFile
from study import style
from study.groups import Group
from study.profiles import TAUS
from study.references import Reference
from study.runs import CONFIG_FILE, Columns, Run, load, read
from study.statistics import Average
from study.style import LineStyle
from study.summary import Study, is_suite_task
from study.training import PANELS, without_seeding

COLUMNS = 4  # panels per row, as in the literature
INFO = "info_"  # prefix of columns (see info_columns)
TARGETS = {"actor_entropy": "actor_target_entropy"}  # columns drawn in the same panel


def save(figure: Figure, path: Path) -> list[Path]:
    """Writes `<path>.png` and `<path>.svg`; equal figures give equal bytes."""
    targets = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a name with two dollar signs is no formula
    with matplotlib.rc_context({"svg.hashsalt": "study"}):
        for target in targets:
            metadata: dict[str, Any] = {"Date": None} if target.suffix == ".svg" else {"Software": None}
            with NewFile(target) as file:  # "tight", as a legend may be wider than the figure
                figure.savefig(file, format=target.suffix[1:], dpi=120, metadata=metadata, bbox_inches="tight")
    return targets


def _grid(num_panels: int, width: float = 3.4, height: float = 2.7) -> tuple[Figure, list[Axes]]:
    num_columns = max(1, min(COLUMNS, num_panels))
    num_rows = -(-num_panels // num_columns)
    figure = Figure(figsize=(max(width * num_columns, 4.4), height * num_rows + 0.5), layout="constrained")
    panels = list(figure.subplots(num_rows, num_columns, squeeze=False).flat)
    for unused in panels[num_panels:]:
        unused.axis("off")
    return figure, panels[:num_panels]


def _label_axes(panel: Axes, title: str, unit: str = "") -> None:
    panel.set(title=title, xlabel="environment steps", ylabel=unit)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.grid(alpha=0.3)


def draw_tasks(study: Study) -> Figure:
    """Draws one panel per task: each group's mean with its interval, unfinished runs, and published curves."""
    figure, panels = _grid(len(study.tasks))
    for index, (panel, (task, groups)) in enumerate(zip(panels, study.tasks.items(), strict=True)):
        for reference in study.references[task]:
            _draw_reference(panel, reference, study.styles[reference.label])
        for group in groups:
            _draw_group(panel, group, study.styles[group.label])
        _label_axes(panel, task, "return" if index % COLUMNS == 0 else "")
        panel.set_xlim(left=0)
        if is_suite_task(task):
            panel.set_ylim(bottom=0)
        if not any(group.average.steps.size for group in groups):
            panel.text(0.5, 0.5, "no evaluation yet", transform=panel.transAxes, ha="center")
    handles = _handles(study.styles)
    if any(group.average.fewer.any() for group in study.groups):
        handles.append(Line2D([], [], color="black", linestyle=(0, style.FEWER_RUNS), label="not all runs got there"))
    if any(not run.finished and run.last_step for run in study.runs):
        handles.append(Line2D([], [], color="black", marker="x", linestyle="", label="an unfinished run's end"))
    _add_legend(figure, handles)
    return figure


def draw_overall(study: Study) -> Figure:
    """Draws the interquartile mean over tasks, one curve per label."""
    labels = {overall.label for overall in study.overall}
    styles = {label: line_style for label, line_style in study.styles.items() if label in labels}
    figure, (panel,) = _grid(1, width=5.2, height=3.6)
    for overall in study.overall:
        _draw_average(panel, overall.average, styles[overall.label])
    _label_axes(panel, f"{study.num_overall_tasks} tasks", "interquartile mean of returns")
    _add_legend(figure, _handles(styles))
    return figure


def draw_profiles(study: Study) -> Figure:
    """Draws the share of runs whose final return is above a share of 1000, with its band, one curve per label."""
    styles = {profile.label: study.styles[profile.label] for profile in study.profiles}
    figure, (panel,) = _grid(1, width=5.2, height=3.6)
    for profile in study.profiles:
        line_style = styles[profile.label]
        panel.fill_between(TAUS, profile.low, profile.high, color=line_style.colour, alpha=0.18, linewidth=0)
        panel.plot(TAUS, profile.value, linewidth=1.6, **line_style.of_matplotlib)
    panel.set(title=f"{study.num_profile_tasks} tasks", xlim=(0, 1), ylim=(0, 1.03))
    panel.set(xlabel="tau, a share of the highest return (1000)", ylabel="share of runs above tau")
    panel.grid(alpha=0.3)
    _add_legend(figure, _handles(styles))
    return figure


def _draw_reference(panel: Axes, reference: Reference, line_style: LineStyle) -> None:
    panel.plot(
        *(reference.steps, reference.returns),
        **line_style.of_matplotlib,
        linewidth=1.1,
        marker="" if len(reference.steps) > 1 else "D",  # a single point would be invisible
        markersize=4,
        label=reference.label,
    )


def _draw_group(panel: Axes, group: Group, line_style: LineStyle) -> None:
    _draw_average(panel, group.average, line_style)
    for run in group.runs:
        steps, values = run.returns
        if steps and not run.finished:
            panel.plot(steps, values, color=line_style.colour, linewidth=0.6, alpha=0.6)
            panel.plot(steps[-1], values[-1], color=line_style.colour, marker="x", markersize=6)


def _draw_average(panel: Axes, average: Average, line_style: LineStyle) -> None:
    colour, fewer = line_style.colour, average.fewer
    panel.fill_between(average.steps, average.low, average.high, color=colour, alpha=0.18, linewidth=0)
    marker = "o" if len(average.steps) <= 20 else ""
    padded = np.pad(fewer, 1)
    dotted = padded[:-2] | fewer | padded[2:]  # begins and ends at a point of the solid line
    for mask, shown in ((~fewer, line_style), (dotted, LineStyle(colour, style.FEWER_RUNS))):
        if mask.any():
            values = np.where(mask, average.value, np.nan)
            panel.plot(average.steps, values, linewidth=1.6, marker=marker, markersize=2.5, **shown.of_matplotlib)


def _handles(styles: dict[str, LineStyle]) -> list[Line2D]:
    return [Line2D([], [], label=label, **line_style.of_matplotlib) for label, line_style in styles.items()]


def _add_legend(figure: Figure, handles: Sequence[Line2D]) -> None:
    columns = 1 if figure.get_figwidth() < 6 else 3
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def draw_run(folder: Path, references: Sequence[Reference] = (), target: Path | None = None) -> list[Path]:
    """Draws what one run has logged so far: returns, losses, temperature, entropy, speed.

    Args:
        references: published curves on its task.
        target: path of the files without its suffix; by default `curves` in the run's folder.

    Returns:
        The PNG and the SVG.
    """
    train, evaluation = without_seeding(read(folder / "train.csv")), read(folder / "eval.csv")
    logged = [panel for panel in PANELS if panel[0] in train]
    infos = info_columns(train, evaluation)
    figure, axes = _grid(len(logged) + len(infos) + 1)
    if (folder / CONFIG_FILE).exists():
        run = Run(folder, load(folder / CONFIG_FILE))
        state = "" if run.finished else f", unfinished: evaluated at step {run.last_step} of {run.length}"
        figure.suptitle(f"{run.task}, {run.agent}, seed {run.seed}{state}")
    _draw_both(axes[0], "episode_reward", train, evaluation)
    styles = style.of_references([reference.label for reference in references])
    for reference in references:
        _draw_reference(axes[0], reference, styles[reference.label])
    for panel, column in zip([axes[0], *axes[1 + len(logged) :]], ["return", *infos], strict=True):
        if column in infos:
            _draw_both(panel, column, train, evaluation)
        _label_axes(panel, column.removeprefix(INFO))
        if panel.lines:
            panel.legend(fontsize=7, frameon=False)
    for panel, (column, title, unit) in zip(axes[1 : 1 + len(logged)], logged, strict=True):
        panel.plot(*train[column], linewidth=0.9, color=style.COLOURS[0])
        if TARGETS.get(column) in train:
            panel.plot(*train[TARGETS[column]], linewidth=0.9, color=style.GREYS[1], linestyle="--", label="target")
            panel.legend(fontsize=7, frameon=False)
        _label_axes(panel, title, unit)
    return save(figure, target or folder / "curves")


def info_columns(*logs: Columns) -> list[str]:
    """Returns the columns that come from the environment's `info` (the key `info_keys`)."""
    return list(dict.fromkeys(column for log in logs for column in log if column.startswith(INFO)))


def _draw_both(panel: Axes, column: str, train: Columns, evaluation: Columns) -> None:
    """Draws a column of both logs; for returns, also the range of an evaluation's episodes."""
    blue = style.COLOURS[0]
    if column in train:
        panel.plot(*train[column], linewidth=0.6, color=style.GREYS[2], label="training episode")
    if column in evaluation:
        low, high = (dict(zip(*evaluation.get(f"{column}_{end}", ((), ())), strict=True)) for end in ("min", "max"))
        if both := sorted(low.keys() & high.keys()):
            ends = [low[step] for step in both], [high[step] for step in both]
            panel.fill_between(both, *ends, alpha=0.2, color=blue, linewidth=0, label="min to max")
        panel.plot(*evaluation[column], marker="o", markersize=2.5, color=blue, label="evaluation, mean")
