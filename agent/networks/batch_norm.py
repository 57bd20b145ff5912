"""Batch normalisation and renormalisation (arXiv 1702.03275). Both work for one network or an ensemble."""

import torch
from torch import Tensor, nn

from agent.networks.fused_norm import Normalised, NormalisedLinear, Statistics
from agent.networks.mlp import Linear
from agent.toolkit.hooks import Phased, TracksBatchStatistics
from settings.types import NonNegativeInt, PositiveFloat, PositiveInt, UnitInterval
from utils import UserError


class BatchNorm(nn.Module, TracksBatchStatistics, Phased):
    """Normalises features over the batch, then scales and shifts them: (B, width) or (N, B, width).

    In training it uses the batch's mean and biased variance, and the running statistics follow after the optimizer's
    step. In evaluation it uses the running statistics. Renormalised batches have nearly the same values, within limits,
    as with the running statistics, but the gradients of the batch's statistics.

    Renormalisation follows CrossQ's code: with std = sqrt(var), and r and d as in the paper and constant, it normalises
    by the mean `mean - d std / r` and the variance `var / r^2`, to which eps is added. The paper's algorithm 1 adds eps
    before dividing by r^2, and its correction by d has no gradient, whereas here std has one.

    Args:
        momentum: share of the old running statistics that each step keeps.
        renorm_after: steps before batches are renormalised; None: never.
        unbiased: whether the running variance follows the batch's unbiased variance, B / (B - 1) times the biased one.
        r_max, d_max: limits of r, the ratio of standard deviations, and of d, the difference of means in units of the
            running standard deviation.
    """

    def __init__(
        self,
        width: PositiveInt,
        num_members: PositiveInt | None = None,
        momentum: UnitInterval = 0.99,
        eps: PositiveFloat = 1e-3,
        renorm_after: NonNegativeInt | None = None,
        r_max: PositiveFloat = 3.0,
        d_max: PositiveFloat = 5.0,
        unbiased: bool = False,
    ):
        super().__init__()
        self.momentum, self.eps, self.unbiased = momentum, eps, unbiased
        self.renorm_after, self.r_max, self.d_max = renorm_after, r_max, d_max
        shape = (1, width) if num_members is None else (num_members, 1, width)
        self.scale = nn.Parameter(torch.ones(shape))
        self.shift = nn.Parameter(torch.zeros(shape))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.num_steps: Tensor
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))
        self.register_buffer("num_steps", torch.zeros(()))
        self._pending: tuple[Tensor, Tensor] | None = None  # the newest batch's mean and variance
        # None: decided by tensors, without Python.
        self._renormalises: bool | None = False if renorm_after is None else None

    def forward(self, x: Tensor) -> Tensor:
        return Normalised.apply(x, self.scale, self.shift, *self.statistics(x))

    def into(self, linear: Linear, x: Tensor, relu: bool, dtype: torch.dtype | None = None) -> Tensor:
        """Computes linear(self(x)), with a ReLU if `relu`: (B, in) or (N, B, in) -> (B, out) or (N, B, out).

        With a ReLU, the backward pass overwrites the incoming gradient, so exactly one layer must use the output. The
        matmul is in `dtype`; None is the parameters' dtype.
        """
        statistics = self.statistics(x)
        return NormalisedLinear.apply(x, self.scale, self.shift, linear.weight, linear.bias, relu, dtype, *statistics)

    @torch.no_grad()
    def statistics(self, x: Tensor) -> Statistics:
        """Returns the statistics to normalise by: the batch's in training, the running ones in evaluation."""
        if not self.training:
            return Statistics(False, self.running_mean, torch.rsqrt(self.running_var + self.eps))
        mean, var = _mean_and_variance(x)
        self._pending = mean, var * (x.shape[-2] / max(x.shape[-2] - 1, 1)) if self.unbiased else var
        if self._renormalises is False:
            return Statistics(True, mean, torch.rsqrt(var + self.eps))
        running = torch.rsqrt(self.running_var + self.eps)
        r = (torch.sqrt(var + self.eps) * running).clamp_(1 / self.r_max, self.r_max)
        d = ((mean - self.running_mean) * running).clamp_(-self.d_max, self.d_max)
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
        self.num_steps += 1
        self._pending = None


def refuse_batch_norm(**networks: nn.Module) -> None:
    """Raises UserError for batch normalisation, for agents whose batches hold only one end of the transitions."""
    for name, network in networks.items():
        if any(isinstance(layer, BatchNorm | nn.modules.batchnorm._BatchNorm) for layer in network.modules()):
            raise UserError(
                f"agent.{name}.network: batch normalisation is for agent=crossq, whose batches have both ends"
            )


def _mean_and_variance(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance, (..., B, width) -> (..., 1, width); torch.var_mean takes 20 times as long."""
    return _moments_on_cpu(x) if x.device.type == "cpu" else _moments_on_gpu(x)


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
