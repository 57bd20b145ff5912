"""How many weights an agent may have."""

from pathlib import Path

import pytest
import torch

from run.memory import limit_by_file
from run.saving import checkpoint
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


def test_a_checkpoint_that_is_deleted_meanwhile_limits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "step_2").mkdir()
    (tmp_path / "step_2/agent.pt").write_bytes(bytes(20))
    monkeypatch.setattr(checkpoint, "newest_first", lambda folder: [tmp_path / "step_2", tmp_path / "step_1"])
    with checkpoint.weight_limit(tmp_path):
        torch.empty(2, 5)
