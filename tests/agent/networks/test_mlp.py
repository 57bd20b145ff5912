"""An MLP's hand-written backward pass against autograd's own."""

import math
from itertools import product

import pytest
import torch

from agent.networks.mlp import MLP, Shape, build_network
from agent.toolkit.copies import frozen_view


def textbook(network: MLP, x: torch.Tensor) -> torch.Tensor:
    """The MLP layer by layer, which autograd differentiates."""
    *hidden, last = network.layers
    for layer in hidden:
        x = torch.relu(torch.matmul(x, layer.weight) + layer.bias)
    return torch.matmul(x, last.weight) + last.bias


@pytest.mark.parametrize(("members", "depth", "out"), list(product([None, 1, 3], [0, 1, 3], [1, 4])))
def test_values_and_gradients_are_autograds(members: int | None, depth: int, out: int) -> None:
    torch.manual_seed(0)
    network = build_network(None, Shape(5, 7, out, depth, members, "torch")).double()
    obs, action = torch.randn(9, 3).double().requires_grad_(), torch.randn(9, 2).double().requires_grad_()
    wanted = [obs, action, *network.parameters()]
    ours, theirs = network(obs, action), textbook(network, torch.cat([obs, action], 1))
    torch.testing.assert_close(ours, theirs)
    weights = torch.randn_like(ours)
    found, expected = (torch.autograd.grad((values * weights).sum(), wanted) for values in (ours, theirs))
    torch.testing.assert_close(found, expected)
    with torch.no_grad():
        torch.testing.assert_close(network(obs, action), theirs)


def test_a_frozen_view_gives_gradients_to_inputs_alone_and_follows_changes_in_place() -> None:
    network = build_network(None, Shape(5, 7, 1, 2, 2))
    view = frozen_view(network)
    obs, action = torch.randn(9, 3), torch.randn(9, 2, requires_grad=True)
    view(obs, action).sum().backward()
    assert action.grad is not None and action.grad.abs().sum() > 0 and obs.grad is None
    assert all(parameter.grad is None for parameter in network.parameters())
    network.load_state_dict(build_network(None, Shape(5, 7, 1, 2, 2)).state_dict())
    assert torch.equal(view(obs, action), network(obs, action))


@pytest.mark.parametrize("num_members", [None, 3])
def test_names_and_initial_weights(num_members: int | None) -> None:
    network = build_network(None, Shape(50, 64, 4, 1, num_members, "torch", 3e-3))
    assert list(network.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]  # as if ReLUs counted
    for layer, bound in zip(network.layers, (1 / math.sqrt(50), 3e-3), strict=True):
        for parameter in (layer.weight, layer.bias):
            assert 0.5 * bound < parameter.abs().max().item() <= bound


@pytest.mark.parametrize("as_on_a_gpu", [False, True])
@pytest.mark.parametrize("judge", ["min", "mean"])
def test_gradients_in_the_inputs_of_a_constant_ensemble(
    judge: str, as_on_a_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU computes only non-zero rows, in one member for a minimum, in all for a mean; a GPU computes all rows."""
    torch.manual_seed(0)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: as_on_a_gpu)  # torch.compile takes a GPU's path
    judged = {"min": lambda q: q.min(0).values, "mean": lambda q: q.mean(0)}[judge]
    obs, action = torch.randn(20, 3), torch.randn(20, 2, requires_grad=True)
    for out_dim in (1, 3):
        network = build_network(None, Shape(5, 16, out_dim, 2, 3)).requires_grad_(False)
        (found,) = torch.autograd.grad(judged(network(obs, action)).square().sum(), [action])
        values = textbook(network, torch.cat([obs, action], 1))
        torch.testing.assert_close(found, torch.autograd.grad(judged(values).square().sum(), [action])[0])
