"""Draws a study's figures, and the curves of one run. A study has its tasks in a grid, and over tasks the
interquartile mean and performance profiles."""

import io
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import EngFormatter

from settings.env_ids import SUITE_TASKS
from study import runs
from study.profiles import TAUS
from study.runs import Run
from study.statistics import Average
from study.summary import COLOURS, FEWER_RUNS, GREYS, LineStyle, Reference, Study, choose_styles
from utils import replacing

Panel = Callable[[Axes], None]  # draws into its axes
COLUMNS = 4  # panels per row, as in the literature
INFO = "info_"  # prefix of columns that come from the environment's `info` (the key `info_keys`)
TARGETS = {"actor_entropy": "actor_target_entropy"}  # columns drawn in the same panel
PANELS = {  # column of train.csv -> title, unit
    "actor_loss": ("actor loss", ""),
    "critic_loss": ("critic loss", ""),
    "value_loss": ("value loss", ""),
    "alpha_loss": ("temperature loss", ""),
    "alpha_value": ("temperature", ""),
    "actor_entropy": ("actor entropy", "nats"),
}
STEPS, MINUTES = "environment steps", "minutes of training"
PAGE_COLOURS = {"#000000": "var(--ink)", "#666666": "var(--faint)", "#0072b2": "var(--blue)"}  # see report.css


def make_figure(panels: Sequence[Panel], handles: Sequence[Line2D] = ()) -> Figure:
    """Draws panels in a grid, with the legend below."""
    num_columns = max(1, min(COLUMNS, len(panels)))
    num_rows = -(-len(panels) // num_columns)
    size = (3.4, 2.7) if len(panels) > 1 or not handles else (5.2, 3.6)
    height = size[1] * num_rows + 0.25 * -(-len(handles) // 3)  # with room for the legend
    figure = Figure(figsize=(size[0] * num_columns, height), layout="constrained")
    axes = list(figure.subplots(num_rows, num_columns, squeeze=False).flat)
    for draw, panel in zip(panels, axes, strict=False):
        draw(panel)
        panel.grid(alpha=0.3)
    for unused in axes[len(panels) :]:
        unused.axis("off")
    if handles:
        columns = 1 if figure.get_figwidth() < 6 else 3
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a name with two dollar signs is no formula
    return figure


def save(figure: Figure, path: Path) -> list[Path]:
    """Writes `<path>.png` and `<path>.svg`; equal figures give equal bytes."""
    targets = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    with matplotlib.rc_context({"svg.hashsalt": "study"}):
        for target in targets:
            metadata: dict[str, Any] = {"Date": None} if target.suffix == ".svg" else {"Software": None}
            with replacing(target) as partial_path:  # "tight", as a legend may be wider than the figure
                figure.savefig(partial_path, dpi=120, metadata=metadata, bbox_inches="tight")
    return targets


def to_svg(figure: Figure, number: int) -> str:
    """Returns an element for a page whose CSS has its colours; each figure on the page needs another number."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": f"figure {number}", "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", transparent=True)
    svg = re.sub(r"<metadata>.*</metadata>", "", file.getvalue(), flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg[svg.index("<svg") :])  # the same in every figure
    for colour, variable in PAGE_COLOURS.items():
        svg = svg.replace(colour, variable)
    return svg


def _label_axes(panel: Axes, title: str, unit: str = "", over: str = STEPS) -> None:
    panel.set(title=title, xlabel=over, ylabel=unit)
    if over == STEPS:
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))


def make_panels(study: Study) -> dict[str, list[Panel]]:
    """Makes the panels of each figure, by the figure's name: a panel per task, over steps and minutes, and those over
    tasks."""
    panels: dict[str, list[Panel]] = {}
    for name, over in (("curves", STEPS), ("minutes", MINUTES)):
        if over == STEPS or any(run.returns_by_minute[0] for run in study.runs):
            panels[name] = [partial(_draw_task, study=study, task=task, over=over) for task in study.tasks]
    if study.overall:
        panels["overall"] = [partial(_draw_overall, study=study)]
    if study.profiles:
        panels["profiles"] = [partial(_draw_profiles, study=study)]
    return panels


def _draw_task(panel: Axes, study: Study, task: str, over: str) -> None:
    """Draws each group's mean with its interval, unfinished runs and, over steps, references."""
    for reference in study.references[task] if over == STEPS else ():
        _draw_reference(panel, reference, study.styles[reference.label])
    for group in study.tasks[task]:
        line_style = study.styles[group.label]
        _draw_average(panel, group.average if over == STEPS else group.average_by_minute, line_style)
        for run in group.runs:
            steps, values = run.returns if over == STEPS else run.returns_by_minute
            if steps and not run.finished:
                panel.plot(steps, values, color=line_style["color"], linewidth=0.6, alpha=0.6)
                panel.plot(steps[-1], values[-1], color=line_style["color"], marker="x", markersize=6)
    _label_axes(panel, task, "return", over)
    panel.set_xlim(left=0)
    if task in SUITE_TASKS:
        panel.set_ylim(bottom=0)
    if not panel.lines:
        panel.text(0.5, 0.5, "no evaluation yet", transform=panel.transAxes, ha="center")


def _draw_overall(panel: Axes, study: Study) -> None:
    for overall in study.overall:
        _draw_average(panel, overall.average, study.styles[overall.label])
    _label_axes(panel, "interquartile mean over tasks", "return")


def _draw_profiles(panel: Axes, study: Study) -> None:
    for profile in study.profiles:
        line_style = study.styles[profile.label]
        panel.fill_between(TAUS, profile.low, profile.high, color=line_style["color"], alpha=0.18, linewidth=0)
        panel.plot(TAUS, profile.value, linewidth=1.6, **line_style)
    panel.set(title="performance profile over tasks", xlim=(0, 1), ylim=(0, 1.03))
    panel.set(xlabel="tau, a share of the highest return (1000)", ylabel="share of runs above tau")


def make_handles(study: Study, name: str) -> list[Line2D]:
    """Makes the legend's entries of the figure `name`: the labels, then what else the panels of tasks show."""
    handles = [Line2D([], [], label=label, **line_style) for label, line_style in study.styles.items()]
    if name not in ("curves", "minutes"):
        return handles[: len(study.labels)]
    averages = [group.average if name == "curves" else group.average_by_minute for group in study.groups]
    if any(average.fewer.any() for average in averages):
        handles.append(Line2D([], [], color="black", linestyle=FEWER_RUNS, label="not all runs got there"))
    if any(not run.finished and run.last_step for run in study.runs):
        handles.append(Line2D([], [], color="black", marker="x", linestyle="", label="an unfinished run's end"))
    return handles


def _draw_reference(panel: Axes, reference: Reference, line_style: LineStyle) -> None:
    marker = "" if len(reference.steps) > 1 else "D"  # a single point would be invisible
    options: dict[str, Any] = {"linewidth": 1.1, "marker": marker, "markersize": 4, "label": reference.label}
    panel.plot(reference.steps, reference.returns, **options, **line_style)


def _draw_average(panel: Axes, average: Average, line_style: LineStyle) -> None:
    steps, value, fewer = average.steps, average.value, average.fewer
    if not len(steps):
        return
    panel.fill_between(steps, average.low, average.high, color=line_style["color"], alpha=0.18, linewidth=0)
    options: dict[str, Any] = {"linewidth": 1.6, "marker": "o" if len(steps) <= 20 else "", "markersize": 2.5}
    panel.plot(steps, np.where(fewer, np.nan, value), **options, **line_style)
    if fewer.any():
        padded = np.pad(fewer, 1)
        dotted = padded[:-2] | fewer | padded[2:]  # begins and ends at a point of the solid line
        options |= line_style | {"linestyle": FEWER_RUNS}
        panel.plot(steps, np.where(dotted, value, np.nan), **options)


def draw_run(folder: Path, references: Sequence[Reference] = (), target: Path | None = None) -> list[Path]:
    """Draws what one run has logged so far, by default as `curves` in its folder; returns the PNG and the SVG."""
    run = runs.load(folder)
    figure = make_figure(make_run_panels(run, references))
    state = "" if run.finished else f", unfinished: evaluated at step {run.last_step} of {run.length}"
    figure.suptitle(f"{run.task}, {run.agent}, seed {run.seed}{state}", parse_math=False)
    return save(figure, target or folder / "curves")


def make_run_panels(run: Run, references: Sequence[Reference] = ()) -> list[Panel]:
    """Makes a panel of the returns, and one per column of train.csv that has a title or comes from `info_keys`."""
    train, evaluations = run.training, run.evaluations
    styles = choose_styles([], [reference.label for reference in references])

    def draw(panel: Axes, column: str, title: str, unit: str = "") -> None:
        if column in train:
            colour = GREYS[2] if column in evaluations else COLOURS[0]
            panel.plot(*train[column], linewidth=0.8, color=colour, label="training")
        if column in evaluations:
            ends = [evaluations.get(f"{column}_{end}", ([], [])) for end in ("min", "max")]
            low, high = (dict(zip(*points, strict=True)) for points in ends)
            if both := sorted(low.keys() & high.keys()):
                band = [low[step] for step in both], [high[step] for step in both]
                panel.fill_between(both, *band, alpha=0.2, color=COLOURS[0], linewidth=0, label="min to max")
            panel.plot(*evaluations[column], marker="o", markersize=2.5, color=COLOURS[0], label="evaluation, mean")
        if (target := TARGETS.get(column)) in train:
            panel.plot(*train[target], linewidth=0.9, color=GREYS[1], linestyle="--", label="target")
        for reference in references if column == "episode_reward" else ():
            _draw_reference(panel, reference, styles[reference.label])
        _label_axes(panel, title, unit)
        if len(panel.lines) > 1:
            panel.legend(fontsize=7, frameon=False)

    shown = {"episode_reward": ("return", "")} | {column: PANELS[column] for column in PANELS if column in train}
    infos = (name for log in (train, evaluations) for name in log if name.startswith(INFO))
    shown |= {column: (column.removeprefix(INFO), "") for column in infos}
    return [partial(draw, column=column, title=title, unit=unit) for column, (title, unit) in shown.items()]
