"""The last lines of a run: its result, its folder, and the commands that come next."""

import math
import shlex
from pathlib import Path

from run.saving import best, checkpoint
from run.saving import folder as run_folder


def summary(folder: Path, step: int, last_return: float, best_return: float | None) -> list[str]:
    """Returns the last lines that a finished run prints.

    Args:
        folder: the run's.
        step: environment steps.
        last_return: mean return of the last evaluation; nan if there was none.
        best_return: the highest mean return of an evaluation; None if there was none.
    """
    result = f"{'Pruned' if run_folder.was_pruned(folder) else 'Finished'} at step {step}"
    if not math.isnan(last_return):
        result += f": return {last_return:.1f}"
    if best_return is not None and (best_step := best.step_of(folder)) is not None:
        result += f"; best {best_return:.1f}, at step {best_step}"
    elif best_return is not None:
        result += f"; best {best_return:.1f}"
    lines = [result, f"Folder:   {folder}"]
    if checkpoint.newest_first(folder):  # neither command works without one
        run = shlex.quote(str(folder))
        lines += [f"Watch:    python evaluate.py {run} --view", f"Evaluate: python evaluate.py {run}"]
    return lines
