"""Layers: an MLP, and an ensemble of MLPs computed as batched products.

An MLP is one node of autograd's graph, with its backward pass written out: at 256 units autograd's bookkeeping for
single layers takes as long as their arithmetic (docs/PERFORMANCE.md).
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from agent.networks.matmul import LARGE_OF_COLUMNS, product

Init = Literal["orthogonal", "torch"]
Gradient = torch.Tensor | None


class Linear(nn.Module):
    """x W + b, or N of them side by side: (B, in) -> (B, out), or (B, in) or (N, B, in) -> (N, B, out).

    Args:
        in_dim, out_dim: widths.
        num_members: None for one layer, weight (in, out) and bias (out); or N, (N, in, out) and (N, 1, out).
    """

    def __init__(self, in_dim: int, out_dim: int, num_members: int | None = None):
        super().__init__()
        self.num_members = num_members
        members = () if num_members is None else (num_members,)
        self.weight = nn.Parameter(torch.empty(*members, in_dim, out_dim))
        self.bias = nn.Parameter(torch.empty(*members, *(1 for _ in members), out_dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return affine(x, self.weight, self.bias)


def affine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """What Linear computes, from its weight and bias."""
    if weight.dim() == 2:
        return torch.addmm(bias, x, weight)
    if x.dim() == 2:
        x = x.expand(weight.shape[0], -1, -1)
    if weight.shape[-1] == 1:  # as rows: with one column, the same product takes three times as long
        return torch.baddbmm(bias, weight.mT, x.mT).mT
    return torch.baddbmm(bias, x, weight)


class MLP(nn.Module):
    """Linear layers with a ReLU between each two: (B, in) -> (B, out), or (N, B, out) for an ensemble.

    Under autocast the hidden-by-hidden products, which are nearly all of the work, and the backward pass are made in
    its type. Forward, the first and the last layer stay in float32: observations and values keep their digits.

    Args:
        layers: their names count the ReLUs too, 0, 2, 4, as those of torch.nn.Sequential would.
    """

    def __init__(self, *layers: Linear):
        super().__init__()
        self.layers = list(layers)  # not found by torch, which finds them by their names below
        for i, layer in enumerate(layers):
            self.add_module(str(2 * i), layer)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Of one input (B, in), or of several that are `in` wide together."""
        device = inputs[0].device.type
        if torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):  # which would round every layer
                return self._compute(inputs, torch.get_autocast_dtype(device))
        return self._compute(inputs, None)

    def _compute(self, inputs: tuple[torch.Tensor, ...], hidden_dtype: torch.dtype | None) -> torch.Tensor:
        weights, biases = [layer.weight for layer in self.layers], [layer.bias for layer in self.layers]
        if torch.is_grad_enabled():
            return _ReLUStack.apply(hidden_dtype, len(inputs), *inputs, *weights, *biases)
        return _forward(hidden_dtype, inputs, weights, biases)[0]


def _forward(
    hidden_dtype: torch.dtype | None,
    inputs: tuple[torch.Tensor, ...],
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """The output, and what the backward pass needs of each layer: its input and its weight."""
    h = torch.cat(inputs, dim=-1) if len(inputs) > 1 else inputs[0]
    last, dtype = len(weights) - 1, h.dtype
    layer_inputs, layer_weights = [], []
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        if hidden_dtype is not None and 0 < i < last:
            h, weight, bias = h.to(hidden_dtype), weight.to(hidden_dtype), bias.to(hidden_dtype)
        layer_inputs.append(h)
        layer_weights.append(weight)
        h = h if h.dtype is weight.dtype else h.to(dtype)
        if weight.shape[-1] == 1:
            h = affine(h, weight, bias)
            h = h.relu_() if i < last else h
        else:
            h = product(h, weight, bias, relu=i < last)
    return h, layer_inputs, layer_weights


class _ReLUStack(torch.autograd.Function):
    """An MLP's output, and its gradients in those inputs and parameters that need one."""

    @staticmethod
    def forward(ctx: Any, hidden_dtype: torch.dtype | None, num_inputs: int, *tensors: torch.Tensor) -> torch.Tensor:
        inputs, parameters = tensors[:num_inputs], tensors[num_inputs:]
        depth = len(parameters) // 2
        out, layer_inputs, layer_weights = _forward(hidden_dtype, inputs, parameters[:depth], parameters[depth:])
        ctx.save_for_backward(*layer_inputs, *layer_weights)
        ctx.widths = [tensor.shape[-1] for tensor in inputs]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Gradient, ...]:
        device = gradient.device.type
        if torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return _ReLUStack.gradients(ctx, gradient)
        return _ReLUStack.gradients(ctx, gradient)

    @staticmethod
    def gradients(ctx: Any, gradient: torch.Tensor) -> tuple[Gradient, ...]:
        """Of the loss in the arguments of `forward`, from that in its output."""
        needs_inputs, needs_parameters = ctx.needs_input_grad[2 : 2 + len(ctx.widths)], ctx.needs_input_grad[-1]
        depth = len(ctx.saved_tensors) // 2
        layer_inputs, weights = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
        by_member = gradient.dim() == 3 and gradient.device.type == "cpu" and not torch.compiler.is_compiling()
        if by_member and not needs_parameters:
            grad_inputs = _grad_inputs_by_member(layer_inputs, weights, ctx.widths, needs_inputs, gradient)
            return None, None, *grad_inputs, *[None] * (2 * depth)
        num_rows = gradient.shape[-2]
        found = _backward(layer_inputs, weights, ctx.widths, needs_inputs, needs_parameters, gradient, num_rows)
        return None, None, *found


def _backward(
    layer_inputs: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    widths: list[int],
    needs_inputs: Sequence[bool],
    needs_parameters: bool,
    gradient: torch.Tensor,
    num_rows: int,
) -> list[Gradient]:
    """The gradients in the inputs, the weights and the biases, None where they are not needed.

    Args:
        num_rows: of the batch, of which the gradient may have a part.
    """
    dtype, depth = gradient.dtype, len(weights)
    grad_inputs: list[Gradient] = [None] * len(widths)
    grad_weights: list[Gradient] = [None] * depth
    grad_biases: list[Gradient] = [None] * depth
    for i in range(depth - 1, -1, -1):
        h, weight = layer_inputs[i], weights[i]
        if i > 0 and gradient.dtype is not h.dtype:
            gradient = gradient.to(h.dtype)
        if gradient.dtype is not dtype:  # autocast
            h, weight = h.to(gradient.dtype), weight.to(gradient.dtype)
        if needs_parameters:
            grad_weights[i] = _weight_gradient(h, gradient).to(dtype)
            grad_biases[i] = gradient.sum(-2, keepdim=gradient.dim() == 3, dtype=dtype)
        if i > 0:
            one = weight.shape[-1] == 1
            gradient = gradient * weight.mT if one else product(gradient, weight.mT, rows=num_rows)
            torch.ops.aten.threshold_backward.grad_input(gradient, h, 0, grad_input=gradient)  # ReLU's, in place
    if any(needs_inputs):
        for k, rows in enumerate(weight.split(widths, dim=-2)):
            if needs_inputs[k]:
                grad_inputs[k] = _first_input_gradient(gradient, rows).to(dtype)
    return [*grad_inputs, *grad_weights, *grad_biases]


def _grad_inputs_by_member(
    layer_inputs: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    widths: list[int],
    needs_inputs: Sequence[bool],
    gradient: torch.Tensor,
) -> list[Gradient]:
    """An ensemble's gradients in its inputs, by the rows that have one.

    Of the minimum of two critics each row's gradient goes through one of them, so half of the products would be by 0.
    """
    found = [gradient.new_zeros(gradient.shape[1], w) if n else None for w, n in zip(widths, needs_inputs, strict=True)]
    for member in range(len(gradient)):
        rows = gradient[member].any(-1).nonzero().squeeze(-1)
        # The first layer's input is not looked at where no parameter needs a gradient.
        hidden = [layer_inputs[0], *(h[member].index_select(0, rows) for h in layer_inputs[1:])]
        own = [weight[member] for weight in weights]
        for_rows = gradient[member].index_select(0, rows)
        parts = _backward(hidden, own, widths, needs_inputs, False, for_rows, num_rows=gradient.shape[1])
        for total, part in zip(found, parts, strict=False):
            if total is not None and part is not None:
                total.index_add_(0, rows, part)
    return found


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.mm(a, b) if a.dim() == 2 else torch.bmm(a, b)


def _weight_gradient(h: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    if gradient.shape[-1] > 1:
        return product(h.mT, gradient, least=LARGE_OF_COLUMNS)
    if h.dim() < gradient.dim():  # every member sees the same input
        h = h.expand(gradient.shape[0], *h.shape)
    return _product(gradient.mT, h).mT


def _first_input_gradient(gradient: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """(B, width), summed over members, for the rows (width, H) or (N, width, H) of the first weight."""
    found = _product(rows, gradient.mT)
    return (found.sum(0) if found.dim() == 3 else found).mT


@torch.no_grad()
def initialise(layer: Linear, init: Init | float) -> None:
    """Gives a layer, or each member of an ensemble of them, its first weights.

    Args:
        init: `orthogonal` weights (gain 1) and zero biases; `torch`, both uniform within 1/sqrt(in_dim), which is
            what torch.nn.Linear does; or a number, both uniform within it.
    """
    weight, bias = layer.weight, layer.bias
    if init == "orthogonal":
        for member in [weight] if layer.num_members is None else weight:
            nn.init.orthogonal_(member)
        nn.init.zeros_(bias)
    else:
        bound = 1 / math.sqrt(weight.shape[-2]) if init == "torch" else float(init)
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
) -> MLP:
    """`hidden_depth` hidden layers with ReLU, then a linear one.

    Args:
        in_dim, hidden_dim, out_dim: widths.
        hidden_depth: 0 or more hidden layers.
        num_members: None for one network, (B, in) -> (B, out); N for an ensemble, (B, in) -> (N, B, out).
        init: of the layers (see `initialise`).
        last_init_bound: the last layer starts uniform within it instead; None leaves it to `init`.
    """

    def linear(fan_in: int, fan_out: int, init: Init | float) -> Linear:
        layer = Linear(fan_in, fan_out, num_members)
        initialise(layer, init)
        return layer

    widths = [in_dim] + [hidden_dim] * hidden_depth
    hidden = [linear(fan_in, fan_out, init) for fan_in, fan_out in pairwise(widths)]
    return MLP(*hidden, linear(widths[-1], out_dim, init if last_init_bound is None else last_init_bound))
