"""Networks built from layers: ensembles against their members alone, the order of layers, dropout, unit lengths."""

import types
from functools import partial
from typing import Any

import pytest
import torch

from agent.networks.batch_norm import BatchNorm
from agent.networks.layers import Dropout, LayerNorm, RMSNorm
from agent.networks.mlp import Shape, build_network
from agent.networks.residual import Network, NormedMLP, PostNormBlock, PreNormBlock, Residual
from agent.toolkit.hooks import Noise

NETWORKS: dict[str, Any] = {
    "mlp": partial(build_network, None),
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


def test_dropout_drops_its_share_keeps_the_mean_and_rests_in_evaluation() -> None:
    dropout, generator, x = Dropout(0.25), torch.Generator().manual_seed(3), torch.ones(2, 400, 50)
    dropout.noise = Noise(types.SimpleNamespace(device=torch.device("cpu"), generator=generator))
    dropped = dropout(x)
    torch.testing.assert_close(dropped.unique(), torch.tensor([0.0, 1 / 0.75]))
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert torch.equal(dropout.eval()(x), x)
