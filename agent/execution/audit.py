"""Compares some replayed updates with eager ones. Both begin in the same state.

A difference means that the recording has frozen a value that has changed since.
"""

import copy
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agent.execution import Result
from utils import leaves

SHARE = 0.5  # how far a replay may end from the eager update, as a share of how far the update moves
SMALLEST = 1e-5  # and at least this far
FIRST = 10  # the replay that is compared first; then every tenth power of ten


@dataclass
class Audit:
    """Compares the 10th, 100th, 1000th, ... replay of an agent's updates."""

    exact: bool  # whether results must be bit-identical; otherwise rounding may differ, as on a GPU
    replays: int = 0

    def due(self) -> bool:
        """Counts a replay and returns whether to compare this one."""
        self.replays += 1
        return self.replays >= FIRST and math.log10(self.replays).is_integer()

    def compare(
        self, agent: Any, replay: Callable[[], Result], run_eagerly: Callable[[], Result]
    ) -> tuple[Result, str]:
        """Makes one update twice from the same state, replayed and eagerly; keeps the eager result and state.

        Returns:
            The eager result, and the name of the first value that differs ("" if none does).
        """
        before = copy.deepcopy(agent.state_dict())
        replayed = copy.deepcopy([*replay(), agent.state_dict()])
        agent.load_state_dict(before)
        result = run_eagerly()
        eager = [*result, agent.state_dict()]
        if not self.exact:
            return result, _beyond_rounding(dict(leaves(before)), dict(leaves(replayed)), dict(leaves(eager)))
        return result, find_difference(replayed, eager)


def find_difference(ours: Any, theirs: Any) -> str:
    """Returns the name of the first leaf of two lists that is not the same, without its place; "" if all are."""
    for (name, a), (other, b) in zip(leaves(ours), leaves(theirs), strict=False):
        if name != other or not _equal(a, b):
            return name.partition(".")[2]
    return ""


def _equal(a: Any, b: Any) -> bool:
    if not isinstance(a, Tensor):
        return bool(a == b)
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())


def _beyond_rounding(before: dict[str, Any], replayed: dict[str, Any], eager: dict[str, Any]) -> str:
    """Returns the name of the first value that differs by more than rounding, and "" if none does.

    Where a gradient is nothing but rounding, as that of a shift before a normalisation, Adam makes whole steps of it,
    and they differ. So a network and its optimiser are compared as a whole: by how far the update moved them.
    """
    apart: defaultdict[str, float] = defaultdict(float)  # squared distances, of each network and optimiser
    moved: defaultdict[str, float] = defaultdict(float)
    for full_name, value in eager.items():
        name, other = full_name.partition(".")[2], replayed[full_name]
        if not isinstance(value, Tensor) or not value.is_floating_point():
            if not _equal(other, value):
                return name
        elif value.numel() == 1 or (old := before.get(name)) is None:
            if not torch.allclose(other, value, rtol=1e-3, atol=1e-5, equal_nan=True):
                return name
        else:
            part = ".".join(name.split(".")[: 2 if name.startswith("optimizers.") else 1])
            apart[part] += float((other - value).square().sum())
            moved[part] += float((value - old).square().sum())
    return next((part for part in apart if not apart[part] <= SHARE**2 * moved[part] + SMALLEST**2), "")


def difference_message(name: str, execution: str) -> str:
    """Returns the line to print when a replayed update differs from an eager one in the value of this name."""
    return (
        f"Updates run eagerly from here on: {name} is not what it would be without execution={execution}, so a number "
        "that update_step reads has changed in Python since; make it a buffer of a module, put it on a schedule, or "
        "ask self.due"
    )
