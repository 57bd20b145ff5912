"""Matmuls by either library match float64, and small ones stay with MKL."""

import pytest
import torch

from agent.networks import mlp as matmul
from agent.networks.mlp import fast_matmul

HAS_ONEDNN = torch.backends.mkldnn.is_available()  # torch for an ARM Mac has none
ONEDNN = pytest.param(True, id="oneDNN", marks=pytest.mark.skipif(not HAS_ONEDNN, reason="this torch has no oneDNN"))


@pytest.fixture(params=[ONEDNN, pytest.param(False, id="MKL")])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whether oneDNN is the faster library ("yes" or "no"), then one entry for each call of oneDNN."""
    calls: list[str] = ["yes" if request.param else "no"]
    by_onednn = matmul._onednn
    monkeypatch.setattr(matmul, "mkl_leaves_avx512_alone", lambda: request.param)
    monkeypatch.setattr(matmul, "_onednn", lambda *given: calls.append("") or by_onednn(*given))
    return calls


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.dtype == torch.float32 and torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.parametrize("shared", [False, True])
def test_values_are_those_of_float64(asked: list[str], members: int | None, shared: bool) -> None:
    torch.manual_seed(0)
    many = () if members is None else (members,)
    x = torch.randn(*(() if shared else many), 256, 130)
    weight, bias = torch.randn(*many, 130, 140), torch.randn(*many, *(() if members is None else (1,)), 140)
    expected = x.double() @ weight.double() + bias.double()
    assert close(fast_matmul(x, weight, bias), expected)
    assert close(fast_matmul(x, weight, bias, relu=True), expected.relu())
    # Read by columns, as gradients are.
    gradient, square = torch.randn(*many, 256, 256), torch.randn(*many, 256, 256)
    wide = torch.randn(256, 256)
    assert close(fast_matmul(gradient, square.mT), gradient.double() @ square.double().mT)
    assert close(fast_matmul(wide.mT, gradient, least=matmul.LARGE_OF_COLUMNS), wide.double().mT @ gradient.double())
    assert len(asked) == (5 if asked[0] == "yes" else 1)


def test_the_rows_that_are_told_decide_and_small_ones_and_other_types_stay(asked: list[str]) -> None:
    x, weight = torch.randn(matmul.LARGE // 128**2 - 1, 128), torch.randn(128, 128)
    assert torch.equal(fast_matmul(x, weight), x @ weight)
    for kind in (torch.double, torch.bfloat16):
        assert fast_matmul(torch.randn(512, 128, dtype=kind), weight.to(kind)).dtype == kind
    assert len(asked) == 1
    for rows in (0, 1, 200):  # a recording keeps its choice for any part of a batch
        x = torch.randn(rows, 128)
        assert close(fast_matmul(x, weight, rows=256), x.double() @ weight.double())
    assert len(asked) == (4 if asked[0] == "yes" else 1)
