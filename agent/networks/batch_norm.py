"""Batch normalisation and renormalisation (arXiv 1702.03275), for one network or an ensemble, with gradients by hand.

Normalising is an affine map of each feature, x -> x s + t. In front of a linear layer it is folded into the weights,
(x s + t) W + b = x (s W) + (t W + b), so only the computation of the statistics reads the whole batch. Written out, the
backward passes of this file, mlp.py and distributions.py save 12 to 22 % of a recorded update.

Notation: s = scale * inv_std and t = shift - centre * s; grad_v is the gradient of the loss in v.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from agent.networks.mlp import Gradient, Linear, fast_affine, fast_matmul, weight_gradient
from agent.toolkit.hooks import Phased, TracksBatchStatistics
from settings.types import NonNegativeInt, PositiveFloat, PositiveInt, UnitInterval

# Limits of r, the ratio of standard deviations, and of d, the difference of means in units of the running
# standard deviation.
R_MAX, D_MAX = 3.0, 5.0


class Statistics(NamedTuple):
    """The statistics, (1, width) or (N, 1, width), of y = (x - centre) * inv_std * scale + shift.

    The centre is mean - offset. Renormalisation corrects a batch's mean by `offset`, whose derivative with respect to
    the batch's variance is `slope`, and multiplies that variance by the constant `shrink` before adding eps; None: no
    correction. `from_batch` says whether mean and variance are functions of x.
    """

    from_batch: bool
    mean: Tensor
    inv_std: Tensor
    offset: Tensor | None = None
    slope: Tensor | None = None
    shrink: Tensor | None = None

    @property
    def centre(self) -> Tensor:
        return self.mean if self.offset is None else self.mean - self.offset


class BatchNorm(nn.Module, TracksBatchStatistics, Phased):
    """Normalises features over the batch, then scales and shifts them: (B, width) or (N, B, width).

    In training it uses the batch's mean and biased variance, and the running statistics follow after the optimizer's
    step. Renormalised batches have nearly the same values, within limits, as with the running statistics, but the
    gradients of the batch's statistics.

    Renormalisation follows CrossQ's code: with std = sqrt(var), and r and d as in the paper and constant, it normalises
    by the mean `mean - d std / r` and the variance `var / r^2`, to which eps is added. The paper's algorithm 1 adds eps
    before dividing by r^2, and its correction by d has no gradient, whereas here std has one.

    Args:
        momentum: share of the old running statistics that each step keeps.
        renorm_after: steps before batches are renormalised; None: never.
        unbiased: whether the running variance follows the batch's unbiased variance, B / (B - 1) times the biased one.
    """

    def __init__(
        self,
        width: PositiveInt,
        num_members: PositiveInt | None = None,
        momentum: UnitInterval = 0.99,
        eps: PositiveFloat = 1e-3,
        renorm_after: NonNegativeInt | None = None,
        unbiased: bool = False,
    ):
        super().__init__()
        self.momentum, self.eps, self.unbiased = momentum, eps, unbiased
        self.renorm_after = renorm_after
        shape = (1, width) if num_members is None else (num_members, 1, width)
        self.scale = nn.Parameter(torch.ones(shape))
        self.shift = nn.Parameter(torch.zeros(shape))
        self.running_mean = nn.Buffer(torch.zeros(shape))
        self.running_var = nn.Buffer(torch.ones(shape))
        self.num_steps = nn.Buffer(torch.zeros(()))
        self._pending: tuple[Tensor, Tensor] | None = None  # the newest batch's mean and variance
        # None: decided by tensors, without Python.
        self._renormalises: bool | None = False if renorm_after is None else None

    def forward(self, x: Tensor) -> Tensor:
        return Normalised.apply(x, self.scale, self.shift, *self.statistics(x))

    def into(self, linear: Linear, x: Tensor, relu: bool) -> Tensor:
        """Computes linear(self(x)), with a ReLU if `relu`: (B, in) or (N, B, in) -> (B, out) or (N, B, out).

        With a ReLU, the backward pass overwrites the incoming gradient, so exactly one layer must use the output.
        """
        statistics = self.statistics(x)
        return NormalisedLinear.apply(x, self.scale, self.shift, linear.weight, linear.bias, relu, *statistics)

    @torch.no_grad()
    def statistics(self, x: Tensor) -> Statistics:
        """Returns the statistics to normalise by: the batch's in training, the running ones in evaluation."""
        if not self.training:
            return Statistics(False, self.running_mean, torch.rsqrt(self.running_var + self.eps))
        mean, var = _moments_on_cpu(x) if x.is_cpu else _moments_on_gpu(x)  # torch.var_mean takes 20 times as long
        self._pending = mean, var * (x.shape[-2] / max(x.shape[-2] - 1, 1)) if self.unbiased else var
        if self._renormalises is False:
            return Statistics(True, mean, torch.rsqrt(var + self.eps))
        running = torch.rsqrt(self.running_var + self.eps)
        r = (torch.sqrt(var + self.eps) * running).clamp_(1 / R_MAX, R_MAX)
        d = ((mean - self.running_mean) * running).clamp_(-D_MAX, D_MAX)
        if self._renormalises is None:
            warm = self.num_steps >= self.renorm_after  # type: ignore[operator]
            r, d = torch.where(warm, r, 1.0), torch.where(warm, d, 0.0)
        std, shrink = torch.sqrt(var), r.square().reciprocal_()
        slope = torch.where(std > 0, 0.5 * d / (r * std), 0.0)  # a constant feature's std has no derivative
        return Statistics(True, mean, torch.rsqrt(var * shrink + self.eps), d * std / r, slope, shrink)

    def enter_phase(self) -> bool | None:
        """Returns whether the next batch is renormalised; None on a GPU, where tensors decide without a host wait."""
        if self.renorm_after is None:
            return False
        steps = self.num_steps
        if steps.is_cpu and (now := steps.item() >= self.renorm_after) is not self._renormalises:
            self._renormalises = now  # only on a change: setting an attribute of a module takes microseconds
        return self._renormalises

    @torch.no_grad()
    def track(self) -> None:
        """Moves the running statistics towards the newest batch's, if there was one since the last call."""
        if self._pending is None:
            return
        mean, var = self._pending
        self.running_mean.lerp_(mean.expand_as(self.running_mean), 1 - self.momentum)
        self.running_var.lerp_(var.expand_as(self.running_var), 1 - self.momentum)
        self.num_steps.add_(1)
        self._pending = None


def _moments_on_gpu(x: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the moments in as many kernels for several members as for one."""
    mean = x.mean(-2, keepdim=True)
    return mean, (x - mean).square_().mean(-2, keepdim=True)


def _moments_on_cpu(x: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the moments in one kernel per member, without a temporary as large as x."""
    if x.dim() == 2:
        mean, var = torch.batch_norm_update_stats(x, None, None, 0.0)
        return mean.unsqueeze(0), var.unsqueeze(0)
    stats = [torch.batch_norm_update_stats(member, None, None, 0.0) for member in x]
    mean, var = (torch.stack(values).unsqueeze(-2) for values in zip(*stats, strict=True))
    return mean, var


def _affine_map(scale: Tensor, shift: Tensor, stats: Statistics) -> tuple[Tensor, Tensor]:
    """Returns s and t of y = x s + t."""
    s = scale * stats.inv_std
    return s, torch.addcmul(shift, stats.centre, s, value=-1)


def _gradients(
    grad_s: Tensor, grad_t: Tensor, s: Tensor, stats: Statistics, batch_size: int
) -> tuple[Tensor, Tensor, Gradient, Gradient]:
    """Turns the gradients of s and t into grad_scale and grad_shift, and c1 and c2.

    x's gradient through the statistics is c1 + c2 x; None if the statistics are constants.
    """
    grad_s = torch.addcmul(grad_s, stats.centre, grad_t, value=-1)  # t depends on s
    grad_scale = grad_s * stats.inv_std
    if not stats.from_batch:
        return grad_scale, grad_t, None, None
    # s is proportional to (shrink var + eps)^(-1/2), so d s / d var = -s inv_std^2 shrink / 2. At constant s,
    # d t / d centre = -s, with d centre / d var = -slope. Last, d var / d x = 2 (x - mean) / B.
    share = s * (-1 / batch_size)
    c2 = grad_scale * stats.inv_std * share
    if stats.shrink is not None and stats.slope is not None:
        c2 = torch.addcmul(c2 * stats.shrink, grad_t * share, stats.slope, value=-2)
    c1 = torch.addcmul(grad_t * share, stats.mean, c2, value=-1)
    if stats.mean.dim() < c1.dim():  # every member saw the same x
        c1, c2 = c1.sum(0), c2.sum(0)
    return grad_scale, grad_t, c1, c2


class Normalised(torch.autograd.Function):
    """y = x s + t."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, *stats: Any) -> Tensor:
        s, t = _affine_map(scale, shift, Statistics(*stats))
        ctx.from_batch, *tensors = stats
        ctx.save_for_backward(x, s, *tensors)
        return torch.addcmul(t, x, s)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Gradient, ...]:
        x, s, *tensors = ctx.saved_tensors
        grad_t = gradient.sum(-2, keepdim=True)
        grad_s = (gradient * x).sum(-2, keepdim=True)
        stats = Statistics(ctx.from_batch, *tensors)
        grad_scale, grad_shift, c1, c2 = _gradients(grad_s, grad_t, s, stats, x.shape[-2])
        # x's gradient: through the affine map, summed over members that share x, and through the statistics.
        grad_x = gradient * s
        if x.dim() < grad_x.dim():
            grad_x = grad_x.sum(0)
        if c1 is not None and c2 is not None:
            grad_x.addcmul_(x, c2).add_(c1)
        return grad_x, grad_scale, grad_shift, *(None for _ in stats)


class NormalisedLinear(torch.autograd.Function):
    """y = (x s + t) W + b, with or without a ReLU, as x (s W) + (t W + b): `folded` is s W, `constant` is t W + b."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, relu: bool, *stats: Any
    ) -> Tensor:
        s, t = _affine_map(scale, shift, Statistics(*stats))
        folded, constant = weight * s.mT, _constant(t, weight, bias)
        out = fast_affine(x, folded, constant, relu)
        ctx.from_batch, *tensors = stats
        ctx.relu = relu
        ctx.save_for_backward(x, out if relu else None, folded, weight, s, t, *tensors)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Gradient, ...]:
        x, out, folded, weight, s, t, *tensors = ctx.saved_tensors
        stats = Statistics(ctx.from_batch, *tensors)
        if ctx.relu:  # in place
            gradient = torch.ops.aten.threshold_backward.grad_input(gradient, out, 0, grad_input=gradient)
        grad_x, grad_scale, grad_shift, grad_weight, grad_bias, c1, c2 = (None,) * 7
        # Gradients of `folded` and `constant` first, then of W, b, s and t, and finally of scale and shift.
        if ctx.from_batch or any(ctx.needs_input_grad[1:5]):
            grad_constant = gradient.sum(-2, keepdim=True)
            grad_folded = weight_gradient(x, gradient)
            grad_weight = torch.addcmul(t.mT * grad_constant, grad_folded, s.mT)
            grad_bias = grad_constant if weight.dim() == 3 else grad_constant[0]
            grad_s = (grad_folded * weight).sum(-1).unsqueeze(-2)
            grad_t = grad_constant @ weight.mT
            grad_scale, grad_shift, c1, c2 = _gradients(grad_s, grad_t, s, stats, x.shape[-2])
        # x's gradient: through `folded`, summed over members that share x, and through the statistics.
        if ctx.needs_input_grad[0]:
            x_per_member = x.dim() == gradient.dim()
            grad_x = _input_gradient(gradient, folded, c1 if x_per_member else None)
            if not x_per_member:
                grad_x = grad_x.sum(0) if c1 is None else grad_x.sum(0).add_(c1)
            if c2 is not None:
                grad_x.addcmul_(x, c2)
        return grad_x, grad_scale, grad_shift, grad_weight, grad_bias, None, *(None for _ in stats)


def _constant(t: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Returns t W + b, for one row or for one row per member."""
    if weight.dim() == 2:
        return torch.addmm(bias, t, weight)
    return torch.baddbmm(bias, t.expand(weight.shape[0], 1, -1), weight)


def _input_gradient(gradient: Tensor, weight: Tensor, constant: Gradient) -> Tensor:
    """Returns gradient W^T, plus a constant (..., 1, in) in each row."""
    if weight.shape[-1] == 1:
        return gradient * weight.mT if constant is None else torch.addcmul(constant, gradient, weight.mT)
    return fast_matmul(gradient, weight.mT, constant)
