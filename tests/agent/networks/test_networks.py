"""Networks built from layers: ensembles against their members alone, the order of layers, dropout, unit lengths."""

import math
import types
from functools import partial
from typing import Any

import pytest
import torch

from agent.networks.batch_norm import BatchNorm
from agent.networks.layers import Dropout, LayerNorm, RMSNorm
from agent.networks.mlp import Linear
from agent.networks.residual import Network, NormedMLP, PostNormBlock, PreNormBlock, Residual, Shape
from agent.toolkit.hooks import Noise

NETWORKS: dict[str, Any] = {
    "crossq": partial(NormedMLP, norm=partial(BatchNorm, renorm_after=0), norm_input=True),
    "droq": partial(NormedMLP, norm=LayerNorm, norm_position="before"),
    "rms": partial(NormedMLP, norm=RMSNorm),
    "plain": partial(NormedMLP),
    "simba": partial(Residual, block=partial(PreNormBlock, norm=LayerNorm), last_norm=LayerNorm),
    "flash": partial(
        Residual,
        block=partial(PostNormBlock, norm=BatchNorm),
        input_norm=BatchNorm,
        last_norm=RMSNorm,
        unit_length=True,
    ),
}
SHAPE = Shape(in_dim=5, hidden_dim=8, out_dim=3, hidden_depth=2)


def randomise(network: Network) -> None:
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        for name, buffer in network.named_buffers():
            if "running" in name:
                buffer.uniform_(0.3, 2)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_an_ensemble_is_as_many_networks(name: str, training: bool) -> None:
    torch.manual_seed(0)
    together = NETWORKS[name](shape=SHAPE._replace(num_members=3)).double().train(training)
    randomise(together)
    obs, action = torch.randn(20, 3).double().requires_grad_(), torch.randn(20, 2).double()
    out = together(obs, action)
    weights = torch.randn_like(out)
    of_obs, *of_weights = torch.autograd.grad((out * weights).sum(), [obs, *together.parameters()])
    total = torch.zeros_like(obs)
    for member in range(3):
        alone = NETWORKS[name](shape=SHAPE).double().train(training)
        own = alone.state_dict()
        alone.load_state_dict(
            {key: t[member].reshape(own[key].shape) if t.dim() else t for key, t in together.state_dict().items()}
        )
        expected = alone(torch.cat([obs, action], 1))
        torch.testing.assert_close(out[member], expected)
        of_alone, *others = torch.autograd.grad((expected * weights[member]).sum(), [obs, *alone.parameters()])
        total = total + of_alone
        torch.testing.assert_close(
            [a[member].reshape(b.shape) for a, b in zip(of_weights, others, strict=True)], others
        )
    torch.testing.assert_close(of_obs, total)


def test_no_bias_stands_in_front_of_batch_statistics() -> None:
    def biases(norm: type, position: str) -> int:
        network = NormedMLP(SHAPE, norm, norm_position=position)  # type: ignore[arg-type]
        return sum(name.endswith("bias") for name, _ in network.named_parameters())

    assert biases(BatchNorm, "before") == 1  # the last layer's
    assert biases(BatchNorm, "after") == biases(LayerNorm, "before") == 3


@pytest.mark.parametrize("norms", [True, False])
def test_unit_lengths_whatever_moved_the_weights(norms: bool) -> None:
    network = NormedMLP(SHAPE._replace(num_members=2), BatchNorm, unit_length=norms or "weights")
    layers = [part for part in network.modules() if isinstance(part, BatchNorm)]
    randomise(network)
    before = [torch.cat([norm.scale, norm.shift], -1) for norm in layers]
    network.after_step()
    for layer in (part for part in network.modules() if isinstance(part, Linear)):
        torch.testing.assert_close(layer.weight.norm(dim=-2), torch.ones_like(layer.weight[:, 0]))
    for norm, old in zip(layers, before, strict=True):
        length = math.sqrt(norm.scale.shape[-1]) if norms else old.norm(dim=-1, keepdim=True)
        torch.testing.assert_close(
            torch.cat([norm.scale, norm.shift], -1), old / old.norm(dim=-1, keepdim=True) * length
        )


def test_dropout_drops_its_share_keeps_the_mean_and_draws_the_same_again() -> None:
    dropout, generator, x = Dropout(0.25), torch.Generator().manual_seed(3), torch.ones(2, 400, 50)
    dropout.noise = Noise(types.SimpleNamespace(device=torch.device("cpu"), generator=generator))
    state = generator.get_state()
    first = dropout(x)
    assert not torch.equal(dropout(x), first)
    values = first.unique()
    torch.testing.assert_close(values, torch.tensor([0.0, 1 / 0.75]))
    assert (first == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    generator.set_state(state)
    assert torch.equal(dropout(x), first)
    assert torch.equal(dropout.eval()(x), x)


@pytest.mark.parametrize("name", NETWORKS)
def test_under_autocast_the_first_and_the_last_product_keep_their_digits(name: str) -> None:
    torch.manual_seed(0)
    shape = Shape(in_dim=5, hidden_dim=64, out_dim=1, hidden_depth=2, num_members=2)
    network, x = NETWORKS[name](shape=shape), torch.randn(40, 5)
    exact = network(x)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = network(x)
        found = torch.autograd.grad(rounded.square().mean(), list(network.parameters()))
    assert rounded.dtype is torch.float32 and not torch.equal(rounded, exact)
    assert not torch.equal(rounded, rounded.bfloat16().float())
    torch.testing.assert_close(rounded, exact, rtol=0.1, atol=0.1)
    expected = torch.autograd.grad(exact.square().mean(), list(network.parameters()))
    for a, b in zip(found, expected, strict=True):
        assert a.dtype is torch.float32 and (a - b).norm() < 0.1 * max(b.norm().item(), 0.05)
