import shlex
from pathlib import Path

import pytest
import torch
from runs import ROOT
from torch import nn

import utils


def test_soft_update_moves_by_tau() -> None:
    net, target = nn.Linear(2, 2), nn.Linear(2, 2)
    before = target.weight.detach().clone()
    utils.soft_update_params(net, target, 0.25)
    torch.testing.assert_close(target.weight, before + 0.25 * (net.weight - before))


def test_a_generator_of_another_kind_of_device_begins_anew_from_its_state() -> None:
    first, second, other = torch.Generator(), torch.Generator(), torch.Generator()
    for generator, number in ((first, 1), (second, 1), (other, 2)):
        utils.restore_generator(generator, torch.full((16,), number, dtype=torch.uint8))  # as long as on a GPU
    drawn = [torch.rand(3, generator=generator) for generator in (first, second, other)]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_a_command_to_copy_works_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert utils.command_line("evaluate.py", "a b") == "python evaluate.py 'a b'"
    monkeypatch.chdir(tmp_path)
    assert shlex.split(utils.command_line("evaluate.py", "a b")) == ["python", str(ROOT / "evaluate.py"), "a b"]
