"""Devices, precisions, and the cores left for stepping worlds."""

from pathlib import Path

import probes
import pytest
import torch

from run import machine
from run.machine import resolve_device, set_precision
from utils import UserError


@pytest.mark.parametrize(
    ("name", "message"), [("cuda:99", "NVIDIA GPU"), ("gpu", "no such device"), ("meta", "only cpu and cuda")]
)
def test_a_device_that_is_not_here_is_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=f"device={name}.*{message}"):
        resolve_device(name)


def test_precision_is_set_for_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_float32_matmul_precision("high")
    assert set_precision("auto", torch.device("cpu")) == "fp32"
    assert torch.get_float32_matmul_precision() == "highest"
    assert set_precision("bf16", torch.device("cpu")) == "bf16"


@pytest.mark.parametrize(
    ("ratio", "said"), [(1.8, "precision=bf16: at this run's sizes this CPU takes 1.8 times"), (0.4, "")]
)
def test_a_run_in_bf16_reports_how_much_slower_it_is(
    ratio: float, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = []
    monkeypatch.setattr(machine, "bf16_time_ratio", lambda *given: sizes.append(given) or ratio)
    probes.workspace(tmp_path / "fp32", "env=ProbeTimeLimit-v0").close()
    assert sizes == []
    overrides = ("agent.batch_size=48", "agent.critic.hidden_dim=24", "precision=bf16")
    probes.workspace(tmp_path / "bf16", "env=ProbeTimeLimit-v0", *overrides).close()
    assert sizes == [(48, 24)]
    printed = capsys.readouterr().out
    assert said in printed and ("precision=bf16" in printed) == bool(said)


def test_a_matmul_in_bf16_is_compared_with_one_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, cost_s = 0.0, {torch.float32: 2.0, torch.bfloat16: 3.0}

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        nonlocal now_s
        assert a.shape == (8, 4) and b.shape == (4, 4) and a.dtype == b.dtype
        now_s += cost_s[a.dtype]
        return a

    monkeypatch.setattr(machine, "fast_matmul", product)
    monkeypatch.setattr(machine.time, "perf_counter", lambda: now_s)
    assert machine.bf16_time_ratio(8, 4) == 1.5


@pytest.mark.parametrize(
    ("device", "has_gpu", "in_a_process", "in_a_sweep", "cores"),
    [
        ("cpu", False, False, False, 8),
        ("auto", True, False, False, 8),
        ("auto", False, True, False, 1),
        ("cpu", True, True, False, 1),
        ("auto", True, True, False, 7),
        ("cuda:0", True, True, False, 7),
        ("auto", True, True, True, 1),
        ("cpu", False, False, True, 1),
    ],
)
def test_worlds_are_stepped_by_the_cores_that_training_leaves(
    monkeypatch: pytest.MonkeyPatch, device: str, has_gpu: bool, in_a_process: bool, in_a_sweep: bool, cores: int
) -> None:
    monkeypatch.setattr(machine, "usable_cpus", lambda: 8)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(machine, "parent_process", lambda: object() if in_a_process else None)
    monkeypatch.delenv(machine.PARENT, raising=False)
    if in_a_sweep:
        monkeypatch.setenv(machine.PARENT, "1")
    assert machine.free_cores(device) == cores
