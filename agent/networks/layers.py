"""Layers without batch statistics, of one network or an ensemble: LayerNorm, RMSNorm, dropout, unit-length weights."""

import math
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Lt
from torch import Tensor, nn

from agent.networks.mlp import Linear
from agent.toolkit.hooks import Draws
from settings.types import PositiveFloat, PositiveInt

Probability = Annotated[float, Ge(0), Lt(1)]


class LayerNorm(nn.Module):
    """Normalises each row, then scales and shifts each feature (arXiv 1607.06450): (..., B, width)."""

    def __init__(self, width: PositiveInt, num_members: PositiveInt | None = None, eps: PositiveFloat = 1e-5):
        super().__init__()
        shape = (1, width) if num_members is None else (num_members, 1, width)
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(shape))
        self.shift = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.shift, F.layer_norm(x, x.shape[-1:], eps=self.eps), self.scale)


class RMSNorm(nn.Module):
    """Divides each row by its root mean square, then scales each feature (arXiv 1910.07467): (..., B, width)."""

    def __init__(self, width: PositiveInt, num_members: PositiveInt | None = None, eps: PositiveFloat = 1e-6):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones((1, width) if num_members is None else (num_members, 1, width)))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.scale


class Dropout(nn.Module, Draws):
    """In training, sets features of each row to 0 at random and scales up the others; does nothing in evaluation."""

    def __init__(self, probability: Probability):
        super().__init__()
        self.keep = 1 - probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return x * (self.noise.uniform(*x.shape) < self.keep).to(x.dtype).div_(self.keep)


@torch.no_grad()
def to_unit_lengths(network: nn.Module, norms: bool = True) -> None:
    """Scales each unit's incoming weights to length 1 and, if `norms`, each norm's parameters to length sqrt(width)."""
    for layer in network.modules():
        if isinstance(layer, Linear):
            layer.weight.div_(torch.linalg.vector_norm(layer.weight, dim=-2, keepdim=True))
        elif norms and isinstance(getattr(layer, "scale", None), nn.Parameter):
            parts = [part for name in ("scale", "shift") if (part := getattr(layer, name, None)) is not None]
            square = torch.stack([part.square().sum(-1, keepdim=True) for part in parts]).sum(0)
            factor = torch.rsqrt(square).mul_(math.sqrt(parts[0].shape[-1]))
            for part in parts:
                part.mul_(factor)
