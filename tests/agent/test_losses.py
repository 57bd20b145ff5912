"""What the agents' formulas in float64 (test_sac_v.py, test_xqc.py and others) leave open of the losses."""

import pytest
import torch

from agent import losses
from agent.networks.heads import ScalarHead
from utils import UserError


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values).unsqueeze(1)


def test_the_gradient_of_a_minimum_is_one_critics_and_of_equal_values_too() -> None:
    q = torch.stack([column(1.0, 7.0), column(2.0, 7.0), column(3.0, 8.0)]).requires_grad_()
    (found,) = torch.autograd.grad(losses.minimum(q).sum(), q)
    assert found[:, 0, 0].tolist() == [1, 0, 0]
    assert sorted(found[:, 1, 0].tolist()) == [0, 0, 1] and found[2, 1, 0] == 0  # not a half each
    torch.testing.assert_close(losses.mean(q), column(2.0, 22 / 3))
    torch.testing.assert_close(losses.first(q), column(1.0, 7.0))
    target = ScalarHead("mean").target(column(1.0, 2.0), column(1.0, 0.0), 0.5, q, column(0.5, 0.5))
    torch.testing.assert_close(target, column(1 + 0.5 * (2 - 0.5), 2.0))


def test_a_value_without_its_column_does_not_meet_every_row() -> None:
    with pytest.raises(UserError, match=r"^q_target: next_value has shape \(3,\); \(B, 1\) or \(B, M\) is needed$"):
        losses.q_target(torch.zeros(3, 1), torch.ones(3, 1), torch.zeros(3), gamma=0.5)


def test_where_mass_goes() -> None:
    places = [-7.0, -2.0, -1.75, -1.0, 0.5, 1.9, 2.0, 40.0]  # beyond the bins, on one, and between two
    mass = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]]).expand(8, 5)
    found = losses.project_to_bins(mass, torch.tensor(places)[:, None].expand(8, 5), (-2.0, 2.0))
    expected = torch.zeros(8, 5)
    expected[[0, 1, 6, 7], [0, 0, 4, 4]] = 1
    expected[[2, 2, 3, 4, 4, 5, 5], [0, 1, 1, 2, 3, 3, 4]] = torch.tensor([0.75, 0.25, 1, 0.5, 0.5, 0.1, 0.9])
    torch.testing.assert_close(found, expected)
