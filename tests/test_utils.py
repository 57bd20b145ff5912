import os

import pytest
import torch
from torch import nn

import utils
from utils import Every


def test_soft_update_moves_by_tau() -> None:
    net, target = nn.Linear(2, 2), nn.Linear(2, 2)
    before = target.weight.detach().clone()
    utils.soft_update_params(net, target, 0.25)
    torch.testing.assert_close(target.weight, before + 0.25 * (net.weight - before))


def test_eval_mode_returns_to_what_was() -> None:
    training, evaluating = nn.Dropout(), nn.Dropout().eval()
    with pytest.raises(RuntimeError), utils.eval_mode(training, evaluating):
        assert not training.training and not evaluating.training
        raise RuntimeError
    assert training.training and not evaluating.training


def test_every_fires_where_a_multiple_is_crossed() -> None:
    every = Every(10)
    assert [step for step in (0, 3, 10, 11, 19, 35, 36, 40) if every(step)] == [10, 35, 40]
    assert not any(Every(0)(step) for step in range(20))


def test_cores_are_those_that_the_process_may_use_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5}, raising=False)
    assert utils.num_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert utils.num_cores() == 7
