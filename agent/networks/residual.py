"""Networks beyond the plain MLP, assembled by the YAML: normalised MLPs and residual networks, single or as ensembles.

A network is built with `shape` and maps (B, in), or several inputs that are concatenated to it, to (B, out) or, as an
ensemble of N = shape.num_members, to (N, B, out). A norm is built with `width` and `num_members`, a block with `shape`;
both keep the shape of their input, (B, width) or (N, B, width).
"""

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from agent.networks.batch_norm import BatchNorm
from agent.networks.layers import Dropout, Probability, to_unit_lengths
from agent.networks.mlp import Init, Linear, Shape
from agent.toolkit.hooks import AfterStep
from settings.types import Factory, PositiveInt

UnitLength = bool | Literal["weights"]


class Network(nn.Sequential, AfterStep):
    """A sequence of layers, whose weights may be kept at unit length."""

    def __init__(self, *layers: nn.Module, unit_length: UnitLength):
        super().__init__(*layers)
        self.unit_length = unit_length
        self.after_step()

    def forward(self, *inputs: Tensor) -> Tensor:
        return super().forward(torch.cat(inputs, dim=-1) if len(inputs) > 1 else inputs[0])

    def after_step(self) -> None:
        if self.unit_length:
            to_unit_lengths(self, norms=self.unit_length != "weights")


class NormedMLP(Network):
    """An MLP with a norm before or after each ReLU.

    Args:
        norm_input: whether the input is normalised too.
        dropout: probability of dropping a hidden feature, directly after its linear layer.
        unit_length: keeps `weights` at unit length, or weights and norms (`true`), or nothing (`false`); see
            agent.networks.layers.to_unit_lengths.
    """

    def __init__(
        self,
        shape: Shape,
        norm: Factory | None = None,
        norm_input: bool = False,
        norm_position: Literal["after", "before"] = "after",
        dropout: Probability = 0.0,
        unit_length: UnitLength = False,
    ):
        members = shape.num_members
        widths = [shape.in_dim] + [shape.hidden_dim] * shape.hidden_depth
        layers: list[nn.Module] = [norm(width=shape.in_dim, num_members=members)] if norm and norm_input else []
        for fan_in, fan_out in pairwise(widths):
            activation = [nn.ReLU()] if norm is None else [nn.ReLU(), norm(width=fan_out, num_members=members)]
            activation = activation if norm_position == "after" else activation[::-1]
            layers.append(make_linear(fan_in, fan_out, shape, bias=not isinstance(activation[0], BatchNorm)))
            layers += [Dropout(dropout), *activation] if dropout else activation
        super().__init__(*layers, shape.make_last_linear(widths[-1]), unit_length=unit_length)

    def forward(self, *inputs: Tensor) -> Tensor:
        x = torch.cat(inputs, dim=-1) if len(inputs) > 1 else inputs[0]
        # BatchNorm, the linear layer after it and a following ReLU in one operation.
        layers, at = list(self), 0
        while at < len(layers):
            layer, following = layers[at], layers[at + 1] if at + 1 < len(layers) else None
            if isinstance(layer, BatchNorm) and isinstance(following, Linear):
                relu = at + 2 < len(layers) and isinstance(layers[at + 2], nn.ReLU)
                x = layer.into(following, x, relu)
                at += 2 + relu
            else:
                x = layer(x)
                at += 1
        return x


class Residual(Network):
    """A linear layer, `hidden_depth` residual blocks, and a linear layer; norms of the first's and the last's input."""

    def __init__(
        self,
        shape: Shape,
        block: Factory,
        input_norm: Factory | None = None,
        last_norm: Factory | None = None,
        unit_length: UnitLength = False,
        input_bias: bool = True,
    ):
        width, members = shape.hidden_dim, shape.num_members
        layers: list[nn.Module] = [input_norm(width=shape.in_dim, num_members=members)] if input_norm else []
        layers.append(make_linear(shape.in_dim, width, shape, bias=input_bias))
        layers += [block(shape=shape) for _ in range(shape.hidden_depth)]
        layers += [last_norm(width=width, num_members=members)] if last_norm else []
        super().__init__(*layers, shape.make_last_linear(width), unit_length=unit_length)


class PreNormBlock(nn.Module):
    """x + linear(ReLU(linear(norm(x)))), the block of SimBa (arXiv 2410.09754); `init` None is the network's."""

    def __init__(self, shape: Shape, norm: Factory, expansion: PositiveInt = 4, init: Init | None = None):
        super().__init__()
        shape = shape if init is None else shape._replace(init=init)
        width = shape.hidden_dim
        self.norm = norm(width=width, num_members=shape.num_members)
        self.up = make_linear(width, expansion * width, shape)
        self.down = make_linear(expansion * width, width, shape)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class PostNormBlock(nn.Module):
    """x + ReLU(norm(linear(ReLU(norm(linear(x)))))), the block of FlashSAC (arXiv 2604.04539); see PreNormBlock."""

    def __init__(self, shape: Shape, norm: Factory, expansion: PositiveInt = 4):
        super().__init__()
        width, members = shape.hidden_dim, shape.num_members
        self.up = make_linear(width, expansion * width, shape, bias=False)
        self.up_norm = norm(width=expansion * width, num_members=members)
        self.down = make_linear(expansion * width, width, shape, bias=False)
        self.down_norm = norm(width=width, num_members=members)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.up_norm(self.up(x)))
        return x + torch.relu(self.down_norm(self.down(h)))


def make_linear(fan_in: int, fan_out: int, shape: Shape, bias: bool = True) -> Linear:
    """Builds an initialised layer of the shape's members; `bias=False` keeps the bias at 0.

    Batch normalisation cancels a bias before it; the bias's gradient would be rounding errors that make Adam drift.
    """
    layer = Linear(fan_in, fan_out, shape.num_members, shape.init)
    if not bias:
        zeros = torch.zeros_like(layer.bias, requires_grad=False)
        del layer.bias
        layer.register_buffer("bias", zeros, persistent=False)
    return layer
