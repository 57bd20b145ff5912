"""Heads: what a critic's outputs mean, and their loss. Outputs are values, quantiles of the return, or a distribution
over bins.

A head is a module with `out_dim`, the width of the last layer, and the methods `values`, `target`, `loss` and, for
prioritised replay, `td_error`, as ScalarHead has them. The equations are in agent/losses.py.
"""

from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn

from agent import losses
from settings.types import Bounds, NonNegativeInt, PositiveFloat, PositiveInt


class ScalarHead(nn.Module):
    """One output, the value itself.

    Args:
        target_q: the target is the `min` over the critics or their `mean`. The minimum prevents overestimation (arXiv
            1802.09477), but it is pessimistic where critics disagree, which can suppress exploration (BRO, arXiv
            2405.16158).
        loss_weight: multiplies the loss.
    """

    out_dim = 1
    averages_targets = True  # whether a mean of targets over actions, weighted by probability, is a target

    def __init__(self, target_q: Literal["min", "mean"] = "min", loss_weight: PositiveFloat = 1.0):
        super().__init__()
        self.loss_weight = loss_weight
        self.reduction = {"min": losses.minimum, "mean": losses.mean}[target_q]

    def values(self, outputs: Tensor) -> Tensor:
        """(N, B, out_dim) -> (N, B, 1)."""
        return outputs

    def target(
        self, reward: Tensor, discount: Tensor, gamma: float, next_outputs: Tensor, next_cost: Tensor | float = 0.0
    ) -> Tensor:
        """Computes the target of `loss` (see agent.losses.q_target).

        Args:
            next_outputs: the target critics' outputs at the next observation, (N, B, out_dim).
            next_cost: subtracted from the next value, (B, 1): SAC's alpha log pi(a'|o').
        """
        return losses.q_target(reward, discount, self.reduction(next_outputs) - next_cost, gamma)

    def loss(self, outputs: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Returns the loss, a scalar: mean over B, with weights (B,) of its rows, sum over the N critics."""
        return losses.squared_error(outputs, target, self.loss_weight, weight)

    def td_error(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Returns the mean absolute TD error of the critics, (B,)."""
        return losses.td_error(outputs, target)


class HuberHead(ScalarHead):
    """A ScalarHead with the loss and the TD error that LAP's prioritised sampling needs (arXiv 2007.06049).

    The loss is linear beyond an error of 1, where LAP samples in proportion to the error.
    """

    def loss(self, outputs: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.loss_weight * losses.huber(outputs, target, weight)

    def td_error(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Returns the largest absolute TD error of the critics, (B,)."""
        return (target - outputs).abs().amax(0).squeeze(-1)


class QuantileHead(nn.Module):
    """K quantiles of the return; targets pool all critics' and drop the `drop_per_critic` largest for each critic (TQC,
    arXiv 2005.04269)."""

    def __init__(self, num_quantiles: PositiveInt = 25, drop_per_critic: NonNegativeInt = 2):
        super().__init__()
        self.out_dim = num_quantiles
        self.drop_per_critic = drop_per_critic

    def values(self, outputs: Tensor) -> Tensor:
        """The means, (N, B, K) -> (N, B, 1)."""
        return outputs.mean(-1, keepdim=True)

    def target(
        self, reward: Tensor, discount: Tensor, gamma: float, next_outputs: Tensor, next_cost: Tensor | float = 0.0
    ) -> Tensor:
        """Returns (B, N (K - drop_per_critic)); see ScalarHead.target."""
        pool = losses.truncated_pool(next_outputs, self.drop_per_critic)
        return losses.q_target(reward, discount, pool - next_cost, gamma)

    def loss(self, outputs: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Returns the mean over B and the N critics; see ScalarHead.loss."""
        return losses.quantile_huber(outputs, target, weight)

    def td_error(self, outputs: Tensor, target: Tensor) -> Tensor:
        return losses.td_error(self.values(outputs), target.mean(-1, keepdim=True))


class CategoricalHead(nn.Module):
    """Probabilities of bins of the return, fitted by cross-entropy (arXiv 1707.06887).

    The target comes from the critic with the smallest mean (arXiv 2604.04539). The K = `num_bins` centres are evenly
    spaced from the first bound to the second.
    """

    averages_targets = True  # a mean of distributions is their mixture

    def __init__(
        self, num_bins: Annotated[int, Ge(2)] = 101, bounds: Bounds = (-5.0, 5.0), loss_weight: PositiveFloat = 1.0
    ):
        super().__init__()
        self.loss_weight, self.out_dim, self.bounds = loss_weight, num_bins, bounds
        self.centres = nn.Buffer(torch.linspace(*bounds, num_bins), persistent=False)

    def values(self, outputs: Tensor) -> Tensor:
        """The means, (N, B, K) -> (N, B, 1)."""
        return torch.softmax(outputs, -1) @ self.centres.unsqueeze(-1)

    def target(
        self, reward: Tensor, discount: Tensor, gamma: float, next_outputs: Tensor, next_cost: Tensor | float = 0.0
    ) -> Tensor:
        """Returns probabilities, (B, K); see ScalarHead.target."""
        probabilities = torch.softmax(next_outputs, -1)  # (N, B, K)
        smallest = (probabilities @ self.centres.unsqueeze(-1)).argmin(0, keepdim=True)  # (1, B, 1)
        chosen = probabilities.gather(0, smallest.expand(1, *probabilities.shape[1:]))[0]
        centres = self.centres.expand(len(reward), -1)
        returns = losses.q_target(reward, discount, centres - next_cost, gamma)
        return losses.project_to_bins(chosen, returns, self.bounds)

    def loss(self, outputs: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.loss_weight * losses.cross_entropy(outputs, target, weight)

    def td_error(self, outputs: Tensor, target: Tensor) -> Tensor:
        return losses.td_error(self.values(outputs), target @ self.centres.unsqueeze(-1))
