"""Layers without batch statistics, of one network or of N side by side: LayerNorm, RMSNorm, dropout, unit lengths."""

import math
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from annotated_types import Ge, Lt
from torch import nn

from agent.mlp import Linear
from utils import PositiveFloat, PositiveInt

Probability = Annotated[float, Ge(0), Lt(1)]


class LayerNorm(nn.Module):
    """Each row to mean 0 and variance 1, then scaled and shifted by feature (arXiv 1607.06450): (..., B, width).

    Args:
        width: features.
        num_members: N, of an ensemble; None for one network.
        eps: added to variances.
    """

    def __init__(self, width: PositiveInt, num_members: PositiveInt | None = None, eps: PositiveFloat = 1e-5):
        super().__init__()
        shape = (1, width) if num_members is None else (num_members, 1, width)
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(shape))
        self.shift = nn.Parameter(torch.zeros(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(self.shift, F.layer_norm(x, x.shape[-1:], eps=self.eps), self.scale)


class RMSNorm(nn.Module):
    """Each row divided by the root of its mean square, then scaled by feature (arXiv 1910.07467): (..., B, width).

    Args: as LayerNorm's.
    """

    def __init__(self, width: PositiveInt, num_members: PositiveInt | None = None, eps: PositiveFloat = 1e-6):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones((1, width) if num_members is None else (num_members, 1, width)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.scale


class Dropout(nn.Module):
    """In training, sets features to 0 with a probability and makes up for it in the others; nothing in evaluation.

    Which, is drawn before an update step by `draw`, from the generator given there, into memory that stays in place:
    so a resumed run drops the same, and a captured update draws anew.

    Args:
        probability: of each feature in each row.
        shape: of what comes in, the batch's rows apart: (width,) or (N, width).
    """

    def __init__(self, probability: Probability, shape: tuple[int, ...]):
        super().__init__()
        self.keep = 1 - probability
        self._shape = shape
        self.factors: torch.Tensor
        self.register_buffer("factors", torch.empty(0), persistent=False)

    @torch.no_grad()
    def draw(self, num_rows: int, generator: torch.Generator) -> None:
        """For the one pass of `num_rows` rows through this module in the update to come."""
        *members, width = self._shape
        shape = (*members, num_rows, width)
        if self.factors.shape != shape:
            self.factors = self.factors.new_empty(shape)
        self.factors.bernoulli_(self.keep, generator=generator).div_(self.keep)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factors if self.training else x


@torch.no_grad()
def to_unit_lengths(network: nn.Module) -> None:
    """What each unit weighs its inputs by, to length 1; a norm's scale and shift together, to length sqrt(width)."""
    for layer in network.modules():
        if isinstance(layer, Linear):
            layer.weight.div_(torch.linalg.vector_norm(layer.weight, dim=-2, keepdim=True))
        elif isinstance(getattr(layer, "scale", None), nn.Parameter):
            _to_length(layer)


def _to_length(norm: Any) -> None:
    square = norm.scale.square().sum(-1, keepdim=True)
    if getattr(norm, "shift", None) is not None:
        square += norm.shift.square().sum(-1, keepdim=True)
    factor = torch.rsqrt(square).mul_(math.sqrt(norm.scale.shape[-1]))
    norm.scale.mul_(factor)
    if getattr(norm, "shift", None) is not None:
        norm.shift.mul_(factor)
