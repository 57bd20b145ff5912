"""Runs in exp/ in, figures out: `python plot.py exp/<day>/<run>` draws one run's curves."""

import csv
import sys
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

Columns = dict[str, tuple[list[float], list[float]]]  # column -> (steps, values) of the rows that have it

PANELS = (  # of train.csv: column, title
    ("actor_loss", "actor loss"),
    ("critic_loss", "Q loss"),
    ("value_loss", "V loss"),
    ("alpha_loss", "temperature loss"),
    ("alpha_value", "temperature"),
    ("actor_entropy", "policy entropy (nats)"),
)


def read(path: Path) -> Columns:
    """A log's columns, blanks left out."""
    columns: Columns = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                for name, value in row.items():
                    if value:
                        steps, values = columns.setdefault(name, ([], []))
                        steps.append(float(row["step"]))
                        values.append(float(value))
    return columns


def draw_run(folder: Path) -> Path:
    """Draws a run's return and whatever losses it has into `curves.png` in its folder."""
    train, evaluation = read(folder / "train.csv"), read(folder / "eval.csv")
    panels = [(column, title) for column, title in PANELS if column in train]
    num_columns = min(4, len(panels) + 1)
    num_rows = -(-(len(panels) + 1) // num_columns)
    figure = Figure(figsize=(3.6 * num_columns, 2.8 * num_rows), layout="constrained")
    axes = figure.subplots(num_rows, num_columns, squeeze=False).flat
    _draw_return(axes[0], train, evaluation)
    for panel, (column, title) in zip(axes[1:], panels, strict=False):
        panel.plot(*train[column], linewidth=0.9)
        panel.set(title=title)
    for panel in axes[: len(panels) + 1]:
        panel.set_xlabel("environment steps")
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.grid(alpha=0.3)
    for panel in axes[len(panels) + 1 :]:
        panel.axis("off")
    target = folder / "curves.png"
    figure.savefig(target, dpi=110)
    return target


def _draw_return(panel: Axes, train: Columns, evaluation: Columns) -> None:
    panel.set(title="return")
    if "episode_reward" in train:
        panel.plot(*train["episode_reward"], linewidth=0.6, alpha=0.5, color="tab:gray", label="training episode")
    if "episode_reward" in evaluation:
        steps, means = evaluation["episode_reward"]
        low, high = evaluation["episode_reward_min"][1], evaluation["episode_reward_max"][1]
        panel.fill_between(steps, low, high, alpha=0.2, color="tab:blue", linewidth=0, label="min to max")
        panel.plot(steps, means, marker="o", markersize=2.5, color="tab:blue", label="evaluation, mean")
    if panel.lines:
        panel.legend(fontsize=7, frameon=False)


if __name__ == "__main__":
    matplotlib.use("Agg")
    for argument in sys.argv[1:]:
        if not (Path(argument) / "train.csv").exists():
            print(f"plot.py: {argument}: no train.csv there; a run's folder goes here", file=sys.stderr)
            sys.exit(2)
        print(draw_run(Path(argument)))
