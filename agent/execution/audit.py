"""Compares some replayed updates with eager ones. Both begin in the same state.

A difference means that the recording has frozen a value that has changed since.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch

from agent.execution.eager import Result
from utils import leaves

FIRST = 10  # the replay that is compared first; then every tenth power of ten


class Audit:
    """Compares the 10th, 100th, 1000th, ... replay of an agent's updates.

    Args:
        exact: whether results must be bit-identical; otherwise rounding may differ, as on a GPU.
    """

    def __init__(self, exact: bool):
        self._exact = exact
        self._replays = 0

    def due(self) -> bool:
        """Counts a replay and returns whether to compare this one."""
        self._replays += 1
        return self._replays >= FIRST and math.log10(self._replays).is_integer()

    def compare(
        self, agent: Any, replay: Callable[[], Result], run_eagerly: Callable[[], Result]
    ) -> tuple[Result, str]:
        """Makes one update twice from the same state, replayed and eagerly; keeps the eager result and state.

        Returns:
            The eager result, and the name of the first value that differs ("" if none does).
        """
        before = agent.snapshot()
        replayed = copy.deepcopy([*replay(), agent.state_dict()])
        agent.load_state_dict(before)
        result = run_eagerly()
        eager = [*result, agent.state_dict()]
        for (name, replayed_value), (_, eager_value) in zip(leaves(replayed), leaves(eager), strict=True):
            if not self._same(replayed_value, eager_value):
                return result, name.partition(".")[2]
        return result, ""

    def _same(self, a: Any, b: Any) -> bool:
        if not isinstance(a, torch.Tensor):
            return a == b
        if self._exact or not a.is_floating_point():
            return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())
        return torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)


def difference_message(name: str, execution: str) -> str:
    """Returns the line to print when a replayed update differs from an eager one in the value of this name."""
    return (
        f"Updates run eagerly from here on: {name} is not what it would be without execution={execution}, so a number "
        "that update_step reads has changed in Python since; make it a tensor, put it on a schedule, or ask self.due"
    )
