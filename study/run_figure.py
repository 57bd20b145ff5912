"""One run's curves: returns, losses, temperature, entropy, speed."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from study import style
from study.figures import draw_reference, dress, grid, save
from study.references import Reference
from study.runs import CONFIG_FILE, Columns, Run, load, read

PANELS = (  # of train.csv: column, title, unit
    ("actor_loss", "actor loss", ""),
    ("critic_loss", "Q loss", ""),
    ("value_loss", "V loss", ""),
    ("alpha_loss", "temperature loss", ""),
    ("alpha_value", "temperature", "alpha"),
    ("actor_entropy", "policy entropy", "nats"),
    ("steps_per_second", "speed", "environment steps / s"),
)
TARGETS = {"actor_entropy": "actor_target_entropy"}  # drawn in the same panel


def draw_run(folder: Path, references: Sequence[Reference] = (), target: Path | None = None) -> list[Path]:
    """Draws whatever a run has logged so far.

    Args:
        folder: the run's.
        references: published curves of its task.
        target: the files' name less its ending; `curves` in the run's folder by default.

    Returns:
        The PNG and the SVG.
    """
    train, evaluation = read(folder / "train.csv"), read(folder / "eval.csv")
    shown = [panel for panel in PANELS if panel[0] in train]
    figure, axes = grid(len(shown) + 1)
    if (folder / CONFIG_FILE).exists():
        figure.suptitle(_title(Run(folder, load(folder / CONFIG_FILE))))
    _draw_returns(axes[0], train, evaluation, references)
    for panel, (column, title, unit) in zip(axes[1:], shown, strict=True):
        panel.plot(*train[column], linewidth=0.9, color=style.COLOURS[0])
        if TARGETS.get(column) in train:
            panel.plot(*train[TARGETS[column]], linewidth=0.9, color=style.GREYS[1], linestyle="--", label="target")
            panel.legend(fontsize=7, frameon=False)
        dress(panel, title, unit)
    return save(figure, target or folder / "curves")


def _title(run: Run) -> str:
    state = "" if run.finished else f", unfinished: evaluated at step {run.last_step} of {run.length}"
    return f"{run.task}, {run.agent}, seed {run.seed}{state}"


def _draw_returns(panel: Axes, train: Columns, evaluation: Columns, references: Sequence[Reference]) -> None:
    if "episode_reward" in train:
        panel.plot(*train["episode_reward"], linewidth=0.6, color=style.GREYS[2], label="training episode")
    if "episode_reward" in evaluation:
        low, high = (evaluation.get(f"episode_reward_{end}") for end in ("min", "max"))
        if low and high:
            panel.fill_between(
                low[0], low[1], high[1], alpha=0.2, color=style.COLOURS[0], linewidth=0, label="min to max"
            )
        panel.plot(
            *evaluation["episode_reward"], marker="o", markersize=2.5, color=style.COLOURS[0], label="evaluation, mean"
        )
    for found, seen in zip(references, style.of_references([one.label for one in references]).values(), strict=True):
        draw_reference(panel, found, seen)
    dress(panel, "return")
    if panel.lines:
        panel.legend(fontsize=7, frameon=False)
