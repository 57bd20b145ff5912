"""Layers: an MLP, and an ensemble of MLPs computed as batched products."""

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import nn

Init = Literal["orthogonal", "torch"]


class EnsembleLinear(nn.Module):
    """N linear layers side by side: (B, in) or (N, B, in) -> (N, B, out)."""

    def __init__(self, num_members: int, in_dim: int, out_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_members, in_dim, out_dim))
        self.bias = nn.Parameter(torch.empty(num_members, 1, out_dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() == 2:
            x = x.expand(self.weight.shape[0], *x.shape)
        return torch.baddbmm(self.bias, x, self.weight)


@torch.no_grad()
def initialise(layer: nn.Linear | EnsembleLinear, fan_in: int, init: Init | float) -> None:
    """Gives a linear layer, or each member of an ensemble of them, its first weights.

    Args:
        layer: has `weight` and `bias`.
        fan_in: the layer's inputs.
        init: `orthogonal` weights (gain 1) and zero biases; `torch`, both uniform within 1/sqrt(fan_in), which is
            what torch.nn.Linear does; or a number, both uniform within it.
    """
    weight, bias = layer.weight, layer.bias
    if init == "orthogonal":
        for member in weight if isinstance(layer, EnsembleLinear) else [weight]:
            nn.init.orthogonal_(member)
        nn.init.zeros_(bias)
    else:
        bound = 1 / math.sqrt(fan_in) if init == "torch" else float(init)
        nn.init.uniform_(weight, -bound, bound)
        nn.init.uniform_(bias, -bound, bound)


def mlp(
    in_dim: int,
    hidden_dim: int,
    out_dim: int,
    hidden_depth: int,
    num_members: int | None = None,
    init: Init = "orthogonal",
    last_init_bound: float | None = None,
) -> nn.Sequential:
    """`hidden_depth` hidden layers with ReLU, then a linear one.

    Args:
        in_dim, hidden_dim, out_dim: widths.
        hidden_depth: 0 or more hidden layers.
        num_members: None for one network, (B, in) -> (B, out); N for an ensemble, (B, in) -> (N, B, out).
        init: of the layers (see `initialise`).
        last_init_bound: the last layer starts uniform within it instead; None leaves it to `init`.
    """

    def linear(fan_in: int, fan_out: int, init: Init | float) -> nn.Module:
        layer: nn.Linear | EnsembleLinear
        layer = nn.Linear(fan_in, fan_out) if num_members is None else EnsembleLinear(num_members, fan_in, fan_out)
        initialise(layer, fan_in, init)
        return layer

    widths = [in_dim] + [hidden_dim] * hidden_depth
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [linear(fan_in, fan_out, init), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, linear(widths[-1], out_dim, init if last_init_bound is None else last_init_bound))
