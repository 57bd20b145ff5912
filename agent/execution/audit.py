"""Now and then, a replayed update beside an eager one from the same state: has it frozen what should have changed?"""

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
        exact: whether every bit has to agree; otherwise rounding may differ, as a GPU's does.
    """

    def __init__(self, exact: bool):
        self._exact = exact
        self._replays = 0

    def due(self) -> bool:
        """Counts a replay; whether it is one to compare."""
        self._replays += 1
        return self._replays >= FIRST and math.log10(self._replays).is_integer()

    def compare(self, agent: Any, replay: Callable[[], Result], run: Callable[[], Result]) -> tuple[Result, str]:
        """Makes one update twice from the same state.

        Args:
            agent: whose state both change.
            replay: what is in doubt.
            run: the same update as Python runs it now. Its result and state are those that stay.

        Returns:
            The result, and the name of the first difference ("" if there is none).
        """
        kept = agent.snapshot()
        found = copy.deepcopy([*replay(), agent.state_dict()])
        agent.load_state_dict(kept)
        result = run()
        for (name, ours), (_, theirs) in zip(leaves(found), leaves([*result, agent.state_dict()]), strict=True):
            if not self._same(ours, theirs):
                return result, name.partition(".")[2]
        return result, ""

    def _same(self, a: Any, b: Any) -> bool:
        if not isinstance(a, torch.Tensor):
            return a == b
        if self._exact or not a.is_floating_point():
            return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())
        return torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)


def frozen(name: str, how: str) -> str:
    """What is said of an agent whose replayed updates are no longer what Python would do."""
    return (
        f"Updates run eagerly from here on: {name} is not what it would be without execution={how}, so a number that "
        "update_step reads has changed in Python since; make it a tensor, put it on a schedule, or ask self.due"
    )
