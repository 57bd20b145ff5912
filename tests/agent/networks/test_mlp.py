"""An MLP's hand-written backward pass against autograd's own, and what autocast may round."""

from itertools import product

import pytest
import torch

from agent.networks.mlp import MLP, mlp
from agent.toolkit.frozen import frozen_view


def textbook(network: MLP, x: torch.Tensor) -> torch.Tensor:
    """The MLP layer by layer, which autograd differentiates."""
    *hidden, last = network.layers
    for layer in hidden:
        x = torch.relu(torch.matmul(x, layer.weight) + layer.bias)
    return torch.matmul(x, last.weight) + last.bias


@pytest.mark.parametrize(("members", "depth", "out"), list(product([None, 1, 3], [0, 1, 2, 3], [1, 4])))
def test_values_and_gradients_are_autograds(members: int | None, depth: int, out: int) -> None:
    torch.manual_seed(0)
    network = mlp(5, 7, out, depth, members, init="torch").double()
    obs, action = torch.randn(9, 3).double().requires_grad_(), torch.randn(9, 2).double().requires_grad_()
    wanted = [obs, action, *network.parameters()]
    ours, theirs = network(obs, action), textbook(network, torch.cat([obs, action], 1))
    torch.testing.assert_close(ours, theirs)
    weights = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad((ours * weights).sum(), wanted),
        torch.autograd.grad((theirs * weights).sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
    with torch.no_grad():
        torch.testing.assert_close(network(obs, action), theirs)


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    network = mlp(5, 7, 1, 2, 2)
    obs, action = torch.randn(9, 3), torch.randn(9, 2, requires_grad=True)
    frozen_view(network)(obs, action).sum().backward()
    assert action.grad is not None and action.grad.abs().sum() > 0
    assert obs.grad is None
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_frozen_view_follows_every_change_in_place() -> None:
    network, x = mlp(5, 7, 1, 2, 2), torch.randn(4, 5)
    view = frozen_view(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1)
    torch.testing.assert_close(view(x), network(x), rtol=0, atol=0)
    network.load_state_dict(mlp(5, 7, 1, 2, 2).state_dict())
    torch.testing.assert_close(view(x), network(x), rtol=0, atol=0)


def test_layers_are_named_as_if_the_relus_between_them_counted() -> None:
    assert list(mlp(5, 7, 1, 2).state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"]


@pytest.mark.parametrize("members", [None, 2])
def test_autocast_rounds_the_products_between_hidden_layers_only(members: int | None) -> None:
    torch.manual_seed(0)
    network, x = mlp(6, 64, 1, 2, members), torch.randn(50, 6)
    parameters = list(network.parameters())
    exact = network(x)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = network(x)
    assert rounded.dtype is torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0.02, atol=0.02)
    assert not torch.equal(rounded, rounded.bfloat16().float())  # the last layer's digits are float32's
    for a, b in zip(
        torch.autograd.grad(rounded.square().mean(), parameters),
        torch.autograd.grad(exact.square().mean(), parameters),
        strict=True,
    ):
        assert a.dtype is torch.float32
        assert (a - b).norm() < 0.03 * b.norm()
    with torch.autocast("cpu", torch.bfloat16):  # one hidden layer has no product between hidden layers
        shallow = mlp(6, 64, 1, 1, members)
        torch.testing.assert_close(shallow(x), textbook(shallow.double(), x.double()).float())


@pytest.mark.parametrize("as_on_a_gpu", [False, True])
@pytest.mark.parametrize("out_dim", [1, 3])
@pytest.mark.parametrize("judge", ["min", "mean"])
def test_gradients_in_the_inputs_of_a_constant_ensemble(
    judge: str, out_dim: int, as_on_a_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU computes only non-zero rows, in one member for a minimum, in all for a mean; a GPU computes all rows."""
    torch.manual_seed(0)
    # torch.compile takes the same path as a GPU.
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: as_on_a_gpu)
    network = mlp(5, 16, out_dim, 2, num_members=3).requires_grad_(False)
    obs, action = torch.randn(20, 3), torch.randn(20, 2, requires_grad=True)
    judged = {"min": lambda q: q.min(0).values, "mean": lambda q: q.mean(0)}[judge]
    (found,) = torch.autograd.grad(judged(network(obs, action)).square().sum(), [action])

    (expected,) = torch.autograd.grad(judged(textbook(network, torch.cat([obs, action], 1))).square().sum(), [action])
    torch.testing.assert_close(found, expected)
