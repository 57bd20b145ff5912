"""Agents' networks start with the initial weights of their authors' code."""

import math
from typing import Any

import pytest
from agents import make_agent

from agent.networks.mlp import Linear

# The largest weight and the standard deviation of a layer (in_dim, out_dim), and whether its biases start at 0.
STARTS: dict[str, Any] = {
    "xavier": lambda n, m: (math.sqrt(6 / (n + m)), math.sqrt(2 / (n + m)), True),
    "torch": lambda n, m: (1 / math.sqrt(n), 1 / math.sqrt(3 * n), False),
    "lecun": lambda n, m: (2 / math.sqrt(n) / 0.87962566, 1 / math.sqrt(n), True),  # truncated at two deviations
}


@pytest.mark.parametrize(
    ("agent", "start"),
    [("redq", "xavier"), ("droq", "xavier"), ("tqc", "torch"), ("td3", "torch"), ("crossq", "lecun")],
)
@pytest.mark.parametrize("part", ["actor", "critic"])
def test_networks_start_as_their_authors_code_starts_them(agent: str, start: str, part: str) -> None:
    network = getattr(make_agent(f"agent={agent}"), part)
    layers = [layer for layer in network.modules() if isinstance(layer, Linear)]
    assert len(layers) > 2
    for layer in layers:
        members = layer.weight.detach() if part == "critic" else layer.weight.detach()[None]
        for weight in members:
            largest, std, zero_bias = STARTS[start](*weight.shape)
            assert weight.abs().max() <= largest * 1.000001
            if weight.numel() > 2000:
                assert weight.abs().max() > 0.97 * largest
                assert weight.std().item() == pytest.approx(std, rel=0.05)
        assert bool(layer.bias.any()) != zero_bias
        assert layer.bias.abs().max() <= largest
        if part == "critic":
            assert (members[0] != members[1]).double().mean() > 0.99
