"""Layers: an MLP, and an ensemble of MLPs computed as batched products. Orthogonal weights, zero biases."""

from itertools import pairwise

import torch
from torch import nn


class EnsembleLinear(nn.Module):
    """N linear layers side by side: (B, in) or (N, B, in) -> (N, B, out)."""

    def __init__(self, num_members: int, in_dim: int, out_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_members, in_dim, out_dim))
        self.bias = nn.Parameter(torch.zeros(num_members, 1, out_dim))
        for member in self.weight.data:
            nn.init.orthogonal_(member)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() == 2:
            x = x.expand(self.weight.shape[0], *x.shape)
        return torch.baddbmm(self.bias, x, self.weight)


def mlp(in_dim: int, hidden_dim: int, out_dim: int, hidden_depth: int, num_members: int | None = None) -> nn.Sequential:
    """`hidden_depth` hidden layers with ReLU, then a linear one.

    Args:
        in_dim, hidden_dim, out_dim: widths.
        hidden_depth: 0 or more hidden layers.
        num_members: None for one network, (B, in) -> (B, out); N for an ensemble, (B, in) -> (N, B, out).
    """

    def linear(fan_in: int, fan_out: int) -> nn.Module:
        if num_members is not None:
            return EnsembleLinear(num_members, fan_in, fan_out)
        layer = nn.Linear(fan_in, fan_out)
        nn.init.orthogonal_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer

    widths = [in_dim] + [hidden_dim] * hidden_depth
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [linear(fan_in, fan_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, linear(widths[-1], out_dim))
