"""Batch (re)normalisation against its textbook form, differentiated by autograd."""

import pytest
import torch

from agent.networks import batch_norm
from agent.networks.batch_norm import D_MAX, R_MAX, BatchNorm
from agent.networks.mlp import Linear


def textbook(norm: BatchNorm, x: torch.Tensor) -> torch.Tensor:
    """CrossQ's renormalisation; until its warm-up is over, plain batch normalisation (arXiv 1502.03167)."""
    if not norm.training:
        return (x - norm.running_mean) / torch.sqrt(norm.running_var + norm.eps) * norm.scale + norm.shift
    mean, var = x.mean(-2, keepdim=True), x.var(-2, keepdim=True, unbiased=False)
    if norm.renorm_after is not None and norm.num_steps >= norm.renorm_after:
        running = torch.sqrt(norm.running_var + norm.eps)
        r = (torch.sqrt(var + norm.eps) / running).clamp(1 / R_MAX, R_MAX).detach()
        d = ((mean - norm.running_mean) / running).clamp(-D_MAX, D_MAX).detach()
        mean, var = mean - d * torch.sqrt(var) / r, var / r**2
    return (x - mean) / torch.sqrt(var + norm.eps) * norm.scale + norm.shift


def random_norm(members: int | None, renorm_after: int | None, training: bool) -> BatchNorm:
    norm = BatchNorm(5, members, renorm_after=renorm_after).double()
    with torch.no_grad():
        norm.scale.uniform_(0.5, 2)
        norm.shift.normal_()
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.05, 2)  # a batch has 9, so r exceeds its limits for some features
        norm.num_steps.fill_(2)
    return norm.train(training)


@pytest.mark.parametrize("as_on_a_gpu", [False, True])
@pytest.mark.parametrize(("renorm_after", "training"), [(None, True), (0, True), (5, True), (0, False)])
@pytest.mark.parametrize(("members", "shared"), [(None, True), (1, False), (3, True), (3, False)])
def test_values_and_gradients_are_the_textbooks(
    members: int | None,
    shared: bool,
    training: bool,
    renorm_after: int | None,
    as_on_a_gpu: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    if as_on_a_gpu:
        monkeypatch.setattr(batch_norm, "_moments_on_cpu", batch_norm._moments_on_gpu)
    norm = random_norm(members, renorm_after, training)
    x = (3 * torch.randn(*(() if shared or not members else (members,)), 9, 5) + 1).double().requires_grad_()
    cases: list[tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]] = [(norm(x), textbook(norm, x), [])]
    for out_dim, relu in ((1, False), (4, True)):
        linear = Linear(5, out_dim, members, "torch").double()
        expected = textbook(norm, x) @ linear.weight + linear.bias
        ours = norm.into(linear, x, relu)
        cases.append((ours, expected.relu() if relu else expected, [linear.weight, linear.bias]))
    for ours, expected, parameters in cases:
        torch.testing.assert_close(ours, expected)
        wanted, weights = [x, norm.scale, norm.shift, *parameters], torch.randn_like(expected)
        found, theirs = (torch.autograd.grad((y * weights).sum(), wanted) for y in (ours, expected))
        torch.testing.assert_close(found, theirs)


@pytest.mark.parametrize("renorm_after", [None, 0])
def test_a_feature_that_never_changes_keeps_finite(renorm_after: int | None) -> None:
    norm, x = BatchNorm(1, renorm_after=renorm_after).train(), torch.full((8, 1), 1e3, requires_grad=True)
    out = norm(x)
    (of_x,) = torch.autograd.grad(out.sum(), [x])
    assert torch.isfinite(out).all() and torch.isfinite(of_x).all()
