"""Which differences between a replayed and an eager update an audit reports, and which it takes for rounding."""

from copy import deepcopy
from typing import Any

import pytest
import torch

from agent.execution.audit import Audit


class Moved:
    """Stands in for an agent; an update changes its state."""

    def __init__(self) -> None:
        network = {"weight": torch.zeros(1000), "shift": torch.zeros(8)}
        optimizer = {"num_steps": torch.tensor(7.0), "first_moments": [torch.zeros(1000), torch.zeros(8)]}
        self.state: dict[str, Any] = {"critic": network, "optimizers": {"critic": optimizer}, "count": 7}
        self.state["log_alpha"] = torch.tensor(0.1)

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = deepcopy(state)

    def update(self, loss: float = 1.0, **by: float) -> tuple[dict[str, torch.Tensor]]:
        """Moves weights, shifts and log_alpha by 1e-3, moments by 0.1, step counts by 1, unless `by` says otherwise."""
        critic, optimizer = self.state["critic"], self.state["optimizers"]["critic"]
        critic["weight"] += by.get("weight", 1e-3)
        critic["shift"] += by.get("shift", 1e-3)
        optimizer["first_moments"][0] += by.get("moment", 0.1)
        optimizer["num_steps"] += by.get("steps", 1)
        self.state["log_alpha"] += by.get("alpha", 1e-3)
        self.state["count"] += 1
        return ({"loss": torch.tensor(loss)},)


def differs(exact: bool = False, **by: float) -> str:
    agent = Moved()
    (result,), name = Audit(exact).compare(agent, lambda: agent.update(**by), agent.update)
    assert result["loss"] == 1 and agent.state["critic"]["weight"][0] == 1e-3  # the eager update is kept
    return name


@pytest.mark.parametrize(
    ("by", "name"),
    [
        *(({name: value}, "") for name, value in (("shift", -1e-3), ("weight", 1.1e-3), ("loss", 1.0005))),
        *(({name: value}, "") for name, value in (("alpha", 1.001e-3), ("moment", 0.101))),
        ({"weight": 2e-3}, "critic"),
        ({"weight": 0.0}, "critic"),
        ({"weight": float("nan")}, "critic"),
        ({"moment": 0.2}, "optimizers.critic"),
        ({"steps": 2}, "optimizers.critic.num_steps"),
        ({"alpha": 2e-3}, "log_alpha"),
        ({"loss": 1.01}, "loss"),
    ],
    ids=str,
)
def test_a_frozen_number_is_named_and_rounding_is_not_unless_all_has_to_be_equal(by: dict[str, Any], name: str) -> None:
    assert differs(**by) == name
    assert differs(exact=True, **by) and not differs(exact=True)
