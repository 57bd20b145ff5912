"""What the machine has: devices, precisions, OpenGL."""

import os
import sys

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


def test_precision_is_chosen_anew_for_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "has_bf16", lambda: True)
    torch.set_float32_matmul_precision("high")
    assert set_precision("auto", torch.device("cpu")) == "fp32"
    assert torch.get_float32_matmul_precision() == "highest"
    assert set_precision("bf16", torch.device("cpu")) == "bf16"


def test_bf16_is_refused_where_it_would_be_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with pytest.raises(UserError, match=r"precision=bf16: .* no instructions .* choose auto or fp32"):
        set_precision("bf16", torch.device("cpu"))
    assert set_precision("bf16", torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("meta"))
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert set_precision("bf16", torch.device("cpu")) == "bf16"


def test_no_backend_is_looked_for_unless_wanted_and_a_dead_one_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dm_control", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert not machine.choose_opengl(wanted=False)
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    assert not machine.choose_opengl(wanted=True)
    assert os.environ["MUJOCO_GL"] == "disabled"
