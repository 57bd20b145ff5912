"""Linear layers and MLPs, single or as an ensemble. The members of an ensemble are computed in batched matmuls.

The backward pass of an MLP is written out by hand (see batch_norm.py). It skips zero rows of a minimum's gradient and
unneeded gradients, works in place, and runs each matmul in the faster library.

torch.mm calls MKL, which does not use AVX-512 on processors other than Intel's. On those, oneDNN, which torch calls for
convolutions, takes half the time for 256 x 256 matrices, and fuses a bias and a ReLU (docs/PERFORMANCE.md). A call of
oneDNN costs ten microseconds more, so small matmuls stay with MKL. Autograd has no gradient for that call.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from settings.operating_system import of_processor
from settings.types import Factory

Init = Literal["orthogonal", "xavier", "torch", "lecun", "he_normal"]
VARIANCES = {"lecun": 1.0, "he_normal": 2.0}  # of weights from a truncated normal distribution, times in_dim
LARGE = 2**21  # multiplications at and above which oneDNN is faster: 128 rows by 128 x 128
LARGE_OF_COLUMNS = 2**22  # the same if both matrices are read by columns, as for a weight's gradient
Gradient = Tensor | None


class Linear(nn.Module):
    """Computes x W + b for one layer, (B, in) -> (B, out), or an ensemble, (B, in) or (N, B, in) -> (N, B, out).

    Weight and bias are (in, out) and (out,), for an ensemble of N = `num_members` (N, in, out) and (N, 1, out).
    """

    def __init__(self, in_dim: int, out_dim: int, num_members: int | None = None, init: Init | float = "orthogonal"):
        super().__init__()
        self.num_members = num_members
        members = () if num_members is None else (num_members,)
        self.weight = nn.Parameter(torch.empty(*members, in_dim, out_dim))
        self.bias = nn.Parameter(torch.empty(*members, *(1 for _ in members), out_dim))
        initialise(self, init)

    def forward(self, x: Tensor) -> Tensor:
        return affine(x, self.weight, self.bias)


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Returns x W + b, for the shapes of Linear."""
    if weight.dim() == 2:
        return torch.addmm(bias, x, weight)
    if x.dim() == 2:
        x = x.expand(weight.shape[0], -1, -1)
    if weight.shape[-1] == 1:  # as one row: with one column, the same matmul takes three times as long
        return torch.baddbmm(bias, weight.mT, x.mT).mT
    return torch.baddbmm(bias, x, weight)


def fast_affine(x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """Returns x W + b without a gradient, after a ReLU if `relu`."""
    if weight.shape[-1] > 1:
        return fast_matmul(x, weight, bias, relu)
    out = affine(x, weight, bias)
    return out.relu_() if relu else out


def fast_matmul(
    a: Tensor, b: Tensor, bias: Tensor | None = None, relu: bool = False, rows: int | None = None, least: int = LARGE
) -> Tensor:
    """Returns a b, optionally with a bias and a ReLU: (M, K) (K, L) -> (M, L), or a batch of N such matmuls.

    Args:
        a: (M, K) or (N, M, K); (M, K) is multiplied with each of b's N matrices.
        bias: (L,) or (1, L), or (N, 1, L).
        rows: the M by which the library is chosen, for calls whose own M varies.
        least: number of multiplications at and above which oneDNN is chosen.
    """
    if _prefers_onednn(a, b, a.shape[-2] if rows is None else rows, least):
        return _onednn(a, b, bias, "relu" if relu else "none")
    if b.dim() == 2:
        out = torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)
    else:
        a = a if a.dim() == 3 else a.expand(b.shape[0], -1, -1)
        out = torch.bmm(a, b) if bias is None else torch.baddbmm(bias, a, b)
    return out.relu_() if relu else out


def _prefers_onednn(a: Tensor, b: Tensor, rows: int, least: int) -> bool:
    is_plain = a.dtype == b.dtype == torch.float32 and a.device.type == "cpu" and not torch.compiler.is_compiling()
    # In an export for batches of any size, `rows` is a symbol.
    is_large = isinstance(rows, int) and rows * b.shape[-2] * b.shape[-1] >= least
    return is_large and is_plain and mkl_leaves_avx512_alone()


@cache
def mkl_leaves_avx512_alone() -> bool:
    """Returns whether this processor has AVX-512 and is not Intel's."""
    has_avx512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512") and torch.backends.mkldnn.is_available()
    return has_avx512 and of_processor("vendor_id") not in ("", "GenuineIntel")


def _onednn(a: Tensor, b: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    linear = torch.ops.mkldnn._linear_pointwise
    if b.dim() == 2:
        return linear(a, b.t(), None if bias is None else bias.view(-1), activation, [], "")
    members = range(len(b))
    inputs = [a if a.dim() == 2 else a[i] for i in members]
    biases = [None if bias is None else bias[i, 0] for i in members]
    return torch.stack([linear(inputs[i], b[i].t(), biases[i], activation, [], "") for i in members])


class MLP(nn.Module):
    """Linear layers with ReLUs in between: (B, in) -> (B, out), or (N, B, out) for an ensemble.

    The layers are named 0, 2, 4, …, as in a torch.nn.Sequential with the ReLUs.
    """

    def __init__(self, *layers: Linear):
        super().__init__()
        self.layers = list(layers)  # torch finds them by the names below
        for i, layer in enumerate(layers):
            self.add_module(str(2 * i), layer)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Applies the layers to one input (B, in), or to several that are concatenated to that width."""
        weights, biases = [layer.weight for layer in self.layers], [layer.bias for layer in self.layers]
        if torch.is_grad_enabled():
            return _ReLUStack.apply(len(inputs), *inputs, *weights, *biases)
        return _forward(inputs, weights, biases)[0]


def _forward(
    inputs: tuple[Tensor, ...], weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Returns the output and, for the backward pass, the inputs of all layers."""
    h = torch.cat(inputs, dim=-1) if len(inputs) > 1 else inputs[0]
    layer_inputs = []
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        layer_inputs.append(h)
        h = fast_affine(h, weight, bias, relu=i < len(weights) - 1)
    return h, layer_inputs


class _ReLUStack(torch.autograd.Function):
    """An MLP as one node of autograd's graph, with the gradients of the inputs and parameters that need one."""

    @staticmethod
    def forward(ctx: Any, num_inputs: int, *tensors: Tensor) -> Tensor:
        inputs, parameters = tensors[:num_inputs], tensors[num_inputs:]
        depth = len(parameters) // 2
        out, layer_inputs = _forward(inputs, parameters[:depth], parameters[depth:])
        ctx.save_for_backward(*layer_inputs, *parameters[:depth])
        ctx.widths = [tensor.shape[-1] for tensor in inputs]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Gradient, ...]:
        needs_inputs, needs_parameters = ctx.needs_input_grad[1 : 1 + len(ctx.widths)], ctx.needs_input_grad[-1]
        depth = len(ctx.saved_tensors) // 2
        layer_inputs, weights = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
        by_member = gradient.dim() == 3 and gradient.device.type == "cpu" and not torch.compiler.is_compiling()
        if by_member and not needs_parameters:
            grad_inputs = _grad_inputs_by_member(layer_inputs, weights, ctx.widths, needs_inputs, gradient)
            return None, *grad_inputs, *[None] * (2 * depth)
        num_rows = gradient.shape[-2]
        grads = _backward(layer_inputs, weights, ctx.widths, needs_inputs, needs_parameters, gradient, num_rows)
        return None, *grads


def _backward(
    layer_inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    widths: list[int],
    needs_inputs: Sequence[bool],
    needs_parameters: bool,
    gradient: Tensor,
    num_rows: int,
) -> list[Gradient]:
    """Returns the gradients of the inputs (of these `widths`), weights and biases; None where they are not needed.

    `gradient` may cover only some of the batch's `num_rows` rows.
    """
    depth = len(weights)
    grad_inputs: list[Gradient] = [None] * len(widths)
    grad_weights: list[Gradient] = [None] * depth
    grad_biases: list[Gradient] = [None] * depth
    # From the last layer to the first; `gradient` is the gradient of layer i's output.
    for i in range(depth - 1, -1, -1):
        h, weight = layer_inputs[i], weights[i]
        if needs_parameters:
            grad_weights[i] = weight_gradient(h, gradient)
            grad_biases[i] = gradient.sum(-2, keepdim=gradient.dim() == 3)
        # Through the weights and then, in place, through the ReLU of the layer before.
        if i > 0:
            gradient = (
                gradient * weight.mT if weight.shape[-1] == 1 else fast_matmul(gradient, weight.mT, rows=num_rows)
            )
            torch.ops.aten.threshold_backward.grad_input(gradient, h, 0, grad_input=gradient)
    # Through the first layer: each input has its rows of the first weight.
    if any(needs_inputs):
        for k, rows in enumerate(weight.split(widths, dim=-2)):
            if needs_inputs[k]:
                transposed = _mm(rows, gradient.mT)  # (..., width, B)
                grad_inputs[k] = (transposed.sum(0) if transposed.dim() == 3 else transposed).mT
    return [*grad_inputs, *grad_weights, *grad_biases]


def _grad_inputs_by_member(
    layer_inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    widths: list[int],
    needs_inputs: Sequence[bool],
    gradient: Tensor,
) -> list[Gradient]:
    """Returns the gradients of an ensemble's inputs, computed for each member's non-zero rows alone.

    In each row, the gradient of a minimum of two critics is zero for one of them: half of the work would be on zeros.
    """
    totals = [
        gradient.new_zeros(gradient.shape[1], w) if n else None for w, n in zip(widths, needs_inputs, strict=True)
    ]
    for member in range(len(gradient)):
        rows = gradient[member].any(-1).nonzero().squeeze(-1)
        # The first layer's input is used only for gradients of parameters, which are not needed here.
        hidden = [layer_inputs[0], *(h[member].index_select(0, rows) for h in layer_inputs[1:])]
        member_weights = [weight[member] for weight in weights]
        row_gradient = gradient[member].index_select(0, rows)
        grads = _backward(hidden, member_weights, widths, needs_inputs, False, row_gradient, num_rows=gradient.shape[1])
        for total, grad in zip(totals, grads, strict=False):
            if total is not None and grad is not None:
                total.index_add_(0, rows, grad)
    return totals


def _mm(a: Tensor, b: Tensor) -> Tensor:
    """Returns a b. Avoids `a @ b`, which changes the strides of batches, and with them the rounding."""
    return torch.mm(a, b) if a.dim() == 2 else torch.bmm(a, b)


def weight_gradient(h: Tensor, gradient: Tensor) -> Tensor:
    """Returns the gradient of W in h W, given the gradient of the product, for the shapes of Linear."""
    if gradient.shape[-1] > 1:
        return fast_matmul(h.mT, gradient, least=LARGE_OF_COLUMNS)
    if h.dim() < gradient.dim():  # every member sees the same input
        h = h.expand(gradient.shape[0], *h.shape)
    return _mm(gradient.mT, h).mT


@torch.no_grad()
def initialise(layer: Linear, init: Init | float) -> None:
    """Draws the initial weights of a layer, or of each member of an ensemble; biases are 0 unless said otherwise.

    `orthogonal`: orthogonal, gain 1. `xavier`: uniform within sqrt(6 / (in_dim + out_dim)) (Glorot and Bengio 2010).
    `torch`: weights and biases uniform within 1/sqrt(in_dim), as torch.nn.Linear does. `lecun`: normal, of variance
    1/in_dim, truncated at two standard deviations as in flax. `he_normal`: as `lecun`, of variance 2/in_dim (arXiv
    1502.01852). A number: weights and biases uniform within it.
    """
    weight, bias = layer.weight, layer.bias
    if init == "orthogonal":
        for member in [weight] if layer.num_members is None else weight:
            nn.init.orthogonal_(member)
        nn.init.zeros_(bias)
    elif init == "xavier":
        bound = math.sqrt(6 / (weight.shape[-2] + weight.shape[-1]))
        nn.init.uniform_(weight, -bound, bound)
        nn.init.zeros_(bias)
    elif init in VARIANCES:
        # A standard normal truncated at 2 has a standard deviation of 0.8796.
        std = math.sqrt(VARIANCES[init] / weight.shape[-2]) / 0.87962566103423978
        nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)
        nn.init.zeros_(bias)
    else:
        bound = 1 / math.sqrt(weight.shape[-2]) if init == "torch" else float(init)
        nn.init.uniform_(weight, -bound, bound)
        nn.init.uniform_(bias, -bound, bound)


class Shape(NamedTuple):
    """What an actor or a critic requires of its network: (B, in_dim) -> (B, out_dim), or with `num_members` N networks,
    (B, in_dim) -> (N, B, out_dim). The last layer starts uniform within `last_init_bound`; None leaves it to `init`."""

    in_dim: int
    hidden_dim: int
    out_dim: int
    hidden_depth: int
    num_members: int | None = None
    init: Init = "orthogonal"
    last_init_bound: float | None = None

    def make_last_linear(self, fan_in: int) -> Linear:
        last_init = self.init if self.last_init_bound is None else self.last_init_bound
        return Linear(fan_in, self.out_dim, self.num_members, last_init)


def build_network(network: Factory | None, shape: Shape) -> Any:
    """Builds a network of this shape; without a factory, the plain MLP."""
    if network is not None:
        return network(shape=shape)
    widths = [shape.in_dim] + [shape.hidden_dim] * shape.hidden_depth
    hidden = [Linear(fan_in, fan_out, shape.num_members, shape.init) for fan_in, fan_out in pairwise(widths)]
    return MLP(*hidden, shape.make_last_linear(widths[-1]))
