"""A normalisation's arithmetic, alone and folded into the linear layer behind it: values and gradients.

Normalising is an affine map of each feature, x -> x s + t. In front of a linear layer it is folded into the weights,
(x s + t) W + b = x (s W) + (t W + b): of the normalisation, only its statistics ever look at the whole batch.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from agent.networks.matmul import LARGE_OF_COLUMNS, product

Gradient = torch.Tensor | None
Backward = Callable[[Any, torch.Tensor], tuple[Gradient, ...]]


class Statistics(NamedTuple):
    """What features are normalised by, (1, width) or (N, 1, width): y = ((x - mean) * inv_std * r + d) * scale + shift.

    r and d correct a batch's statistics towards the running ones, and are constants; None where there is no such
    correction. `from_batch` says whether mean and inv_std are functions of x.
    """

    mean: torch.Tensor
    inv_std: torch.Tensor
    r: torch.Tensor | None
    d: torch.Tensor | None
    from_batch: bool


def _affine_of(scale: torch.Tensor, shift: torch.Tensor, by: Statistics) -> tuple[torch.Tensor, torch.Tensor]:
    """s and t in y = x s + t."""
    if by.r is None or by.d is None:
        s = scale * by.inv_std
        return s, torch.addcmul(shift, by.mean, s, value=-1)
    s = scale * by.r * by.inv_std
    return s, torch.addcmul(torch.addcmul(shift, scale, by.d), by.mean, s, value=-1)


def _gradients(
    grad_s: torch.Tensor, grad_t: torch.Tensor, s: torch.Tensor, scale: torch.Tensor, by: Statistics, batch_size: int
) -> tuple[torch.Tensor, torch.Tensor, Gradient, Gradient]:
    """From the loss's gradients in s and t: those in scale and shift, and x's by way of the statistics, c1 + c2 x."""
    grad_s = torch.addcmul(grad_s, by.mean, grad_t, value=-1)  # t holds s too
    grad_scale = grad_through_s = grad_s * by.inv_std
    if by.r is not None and by.d is not None:
        grad_scale = torch.addcmul(grad_scale * by.r, grad_t, by.d)
    if not by.from_batch:
        return grad_scale, grad_t, None, None
    # s is proportional to (var + eps)^(-1/2), so d s / d var = -s inv_std^2 / 2; d var / d x = 2 (x - mean) / B.
    share = s * (-1 / batch_size)
    c2 = grad_through_s * by.inv_std * share
    c1 = torch.addcmul(grad_t * share, by.mean, c2, value=-1)
    if by.mean.dim() < c1.dim():  # every member saw the same x
        c1, c2 = c1.sum(0), c2.sum(0)
    return grad_scale, grad_t, c1, c2


def _in_full(backward: Backward) -> Backward:
    """Lets autocast, which would round every product in a backward pass, round none."""

    @wraps(backward)
    def exact(ctx: Any, gradient: torch.Tensor) -> tuple[Gradient, ...]:
        if not torch.is_autocast_enabled(gradient.device.type):
            return backward(ctx, gradient)
        with torch.autocast(gradient.device.type, enabled=False):
            return backward(ctx, gradient)

    return exact


class Normalised(torch.autograd.Function):
    """x s + t."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, *by: Any) -> torch.Tensor:
        s, t = _affine_of(scale, shift, Statistics(*by))
        mean, inv_std, r, d, ctx.from_batch = by
        ctx.save_for_backward(x, scale, s, mean, inv_std, r, d)
        return torch.addcmul(t, x, s)

    @staticmethod
    @once_differentiable
    @_in_full
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Gradient, ...]:
        x, scale, s, mean, inv_std, r, d = ctx.saved_tensors
        grad_t = gradient.sum(-2, keepdim=True)
        grad_s = (gradient * x).sum(-2, keepdim=True)
        statistics = Statistics(mean, inv_std, r, d, ctx.from_batch)
        grad_scale, grad_shift, c1, c2 = _gradients(grad_s, grad_t, s, scale, statistics, x.shape[-2])
        grad_x = gradient * s
        if x.dim() < grad_x.dim():
            grad_x = grad_x.sum(0)
        if c1 is not None and c2 is not None:
            grad_x.addcmul_(x, c2).add_(c1)
        return grad_x, grad_scale, grad_shift, *(None for _ in statistics)


class NormalisedLinear(torch.autograd.Function):
    """(x s + t) W + b, and a ReLU after it or none."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        scale: torch.Tensor,
        shift: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        relu: bool,
        dtype: torch.dtype | None,
        *by: Any,
    ) -> torch.Tensor:
        s, t = _affine_of(scale, shift, Statistics(*by))
        folded, constant = weight * s.mT, _constant(t, weight, bias)
        out = _affine(x, folded, constant, dtype, relu)
        mean, inv_std, r, d, ctx.from_batch = by
        ctx.relu, ctx.dtype = relu, dtype
        ctx.save_for_backward(x, out if relu else None, folded, weight, scale, s, t, mean, inv_std, r, d)
        return out

    @staticmethod
    @once_differentiable
    @_in_full
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Gradient, ...]:
        x, out, folded, weight, scale, s, t, mean, inv_std, r, d = ctx.saved_tensors
        statistics = Statistics(mean, inv_std, r, d, ctx.from_batch)
        if ctx.relu:
            gradient = torch.ops.aten.threshold_backward.grad_input(gradient, out, 0, grad_input=gradient)
        grad_x, grad_scale, grad_shift, grad_weight, grad_bias, c1, c2 = (None,) * 7
        if ctx.from_batch or any(ctx.needs_input_grad[1:5]):
            grad_constant = gradient.sum(-2, keepdim=True)
            grad_folded = _weight_gradient(x, gradient, ctx.dtype)
            grad_weight = torch.addcmul(t.mT * grad_constant, grad_folded, s.mT)
            grad_bias = grad_constant if weight.dim() == 3 else grad_constant[0]
            grad_s = (grad_folded * weight).sum(-1).unsqueeze(-2)
            grad_t = grad_constant @ weight.mT
            grad_scale, grad_shift, c1, c2 = _gradients(grad_s, grad_t, s, scale, statistics, x.shape[-2])
        if ctx.needs_input_grad[0]:
            members_apart = x.dim() == gradient.dim()
            grad_x = _input_gradient(gradient, folded, c1 if members_apart else None, ctx.dtype)
            if not members_apart:
                grad_x = grad_x.sum(0) if c1 is None else grad_x.sum(0).add_(c1)
            if c2 is not None:
                grad_x.addcmul_(x, c2)
        return grad_x, grad_scale, grad_shift, grad_weight, grad_bias, None, None, *(None for _ in statistics)


def _cast(dtype: torch.dtype | None, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tensors if dtype is None else tuple(tensor.to(dtype) for tensor in tensors)


def _constant(t: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """t W + b, of one row or one of each member."""
    if weight.dim() == 2:
        return torch.addmm(bias, t, weight)
    return torch.baddbmm(bias, t.expand(weight.shape[0], 1, -1), weight)


def _affine(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, dtype: torch.dtype | None, relu: bool = False
) -> torch.Tensor:
    kept = x.dtype
    x, weight, bias = _cast(dtype, x, weight, bias)
    if weight.dim() == 3 and weight.shape[-1] == 1:  # as rows: with one column, the product takes three times as long
        out = torch.baddbmm(bias, weight.mT, _for_members(x, weight).mT).mT
        return (out.relu_() if relu else out).to(kept)
    return product(x, weight, bias, relu).to(kept)


def _for_members(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return x if x.dim() == like.dim() else x.expand(like.shape[0], *x.shape)


def _weight_gradient(x: torch.Tensor, gradient: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    x, cast = _cast(dtype, x, gradient)
    if cast.shape[-1] == 1:
        return (cast.mT @ _for_members(x, gradient)).mT.to(gradient.dtype)
    return product(x.mT, cast, least=LARGE_OF_COLUMNS).to(gradient.dtype)


def _input_gradient(
    gradient: torch.Tensor, weight: torch.Tensor, constant: Gradient, dtype: torch.dtype | None
) -> torch.Tensor:
    """gradient W^T, and a constant (..., 1, in) on top of each row."""
    if weight.shape[-1] == 1:
        return gradient * weight.mT if constant is None else torch.addcmul(constant, gradient, weight.mT)
    if constant is None:
        cast, weight = _cast(dtype, gradient, weight)
        return product(cast, weight.mT).to(gradient.dtype)
    return _affine(gradient, weight.mT, constant, dtype)
