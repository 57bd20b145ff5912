"""Devices, precisions, and the cores left for stepping worlds."""

import pytest
import torch

from run import execution
from run.execution import set_precision, world_threads


def test_precision_is_set_for_every_run() -> None:
    torch.set_float32_matmul_precision("high")
    assert set_precision("auto", torch.device("cpu")) == "fp32"
    assert torch.get_float32_matmul_precision() == "highest"
    assert (torch.tensor(1e-39) * 1).item() == 0.0


@pytest.mark.parametrize(
    ("device", "has_gpu", "in_a_process", "in_a_sweep", "cores"),
    [
        ("cpu", False, False, False, 8),
        ("cpu", True, True, False, 1),
        ("auto", True, True, False, 7),
        ("auto", True, True, True, 1),
        ("cpu", False, False, True, 1),
    ],
)
def test_worlds_are_stepped_by_the_cores_that_training_leaves(
    monkeypatch: pytest.MonkeyPatch, device: str, has_gpu: bool, in_a_process: bool, in_a_sweep: bool, cores: int
) -> None:
    monkeypatch.setattr(execution, "usable_cpus", lambda: 8)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(execution, "parent_process", lambda: object() if in_a_process else None)
    monkeypatch.delenv(execution.CORES_SHARED, raising=False)
    if in_a_sweep:
        monkeypatch.setenv(execution.CORES_SHARED, "1")
    assert world_threads(device) == cores
