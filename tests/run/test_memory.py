"""How many weights an agent may have."""

import pytest
import torch

from run.memory import limit_by_file
from utils import UserError


def test_a_weight_takes_two_bytes_of_its_file_at_least() -> None:
    with limit_by_file(20, "a.pt"):
        torch.empty(2, 5)
    with (
        pytest.raises(UserError, match=r"a\.pt: .* more weights than are saved there \(at least 11\)"),
        limit_by_file(20, "a.pt"),
    ):
        torch.empty(5)
        torch.empty(2, 3)
