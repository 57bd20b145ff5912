"""What a critic's outputs mean: values, quantiles of the return, or a distribution over bins. Each with its loss.

A head says how wide the last layer is, turns outputs into values, makes a target of the outputs at the next step, fits
outputs to it, and says how far they are from it. The equations are in agent.losses.
"""

from typing import Annotated, Literal

import torch
from torch import nn

from agent import losses
from settings.types import Bounds, Factory, NonNegativeInt, Part, PositiveInt
from settings.validated import Validated
from utils import UserError

HeadFactory = Annotated[Factory, Part("a head", (), ("values", "target", "loss"))]


class ScalarHead(nn.Module, Validated):
    """One output, the value itself.

    Args:
        target_q: what a target is made of: the `min` over the critics, or their `mean`. The minimum keeps values from
            running away (arXiv 1802.09477); it also holds what is uncertain to be bad, so that what has to be found
            first may never be tried again, and many steps may be worth it to do without (BRO, arXiv 2405.16158).
    """

    out_dim = 1

    def __init__(self, target_q: Literal["min", "mean"] = "min"):
        super().__init__()
        self.reduction = {"min": losses.minimum, "mean": losses.mean}[target_q]

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """(N, B, out_dim) -> (N, B, 1)."""
        return outputs

    def target(
        self,
        reward: torch.Tensor,
        discount: torch.Tensor,
        gamma: float,
        next_outputs: torch.Tensor,
        next_cost: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """What `loss` takes, from the target critics' outputs at the next step.

        Args:
            reward, discount, gamma: as losses.q_target's.
            next_outputs: (N, B, out_dim).
            next_cost: what is subtracted from the next value, (B, 1): SAC's alpha log pi(a'|o'); None is nothing.
        """
        return losses.q_target(reward, discount, _less(self.reduction(next_outputs), next_cost), gamma)

    def loss(self, outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        """Scalar: the mean over B, summed over the N critics.

        Args:
            weight: each row's in that mean, (B,); None is 1 for each.
        """
        return losses.squared_error(outputs, target, importance=weight)

    def td_error(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """How far the values are from the target's mean, (B,); the mean over the critics."""
        return losses.td_error(outputs, target)


class QuantileHead(nn.Module, Validated):
    """Quantiles of the return; the target pools those of all critics and drops the topmost (TQC, arXiv 2005.04269).

    Args:
        num_quantiles: K, of each critic.
        drop_per_critic: of the K N quantiles in the pool, the largest N times as many are dropped.

    Raises:
        UserError: if none would be left.
    """

    def __init__(self, num_quantiles: PositiveInt = 25, drop_per_critic: NonNegativeInt = 2):
        super().__init__()
        if drop_per_critic >= num_quantiles:
            raise UserError(
                f"agent.critic.head.drop_per_critic={drop_per_critic}: below num_quantiles={num_quantiles} is needed"
            )
        self.out_dim = num_quantiles
        self.drop_per_critic = drop_per_critic

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """The means, (N, B, K) -> (N, B, 1)."""
        return outputs.mean(-1, keepdim=True)

    def target(
        self,
        reward: torch.Tensor,
        discount: torch.Tensor,
        gamma: float,
        next_outputs: torch.Tensor,
        next_cost: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(B, N (K - drop_per_critic)); see ScalarHead.target."""
        kept = losses.truncated_pool(next_outputs, self.drop_per_critic)
        return losses.q_target(reward, discount, _less(kept, next_cost), gamma)

    def loss(self, outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        return losses.quantile_huber(outputs, target, weight)

    def td_error(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return losses.td_error(self.values(outputs), target.mean(-1, keepdim=True))


class CategoricalHead(nn.Module, Validated):
    """Probabilities of bins between two returns, fitted by cross-entropy; the target is the more careful critic's.

    (arXiv 1707.06887; the choice of the critic with the smaller mean: arXiv 2604.04539)

    Args:
        num_bins: K, 2 or more, with their centres evenly spread from the first bound to the second.
        bounds: of the returns that can be told apart.

    Raises:
        UserError: for one bin.
    """

    def __init__(self, num_bins: PositiveInt = 101, bounds: Bounds = (-5.0, 5.0)):
        super().__init__()
        if num_bins < 2:
            raise UserError(f"agent.critic.head.num_bins={num_bins}: 2 or more are needed")
        self.out_dim = num_bins
        self.centres: torch.Tensor
        self.register_buffer("centres", torch.linspace(*bounds, num_bins), persistent=False)
        self.bounds = bounds

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """The means, (N, B, K) -> (N, B, 1)."""
        return torch.softmax(outputs, -1) @ self.centres.unsqueeze(-1)

    def target(
        self,
        reward: torch.Tensor,
        discount: torch.Tensor,
        gamma: float,
        next_outputs: torch.Tensor,
        next_cost: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Probabilities, (B, K); see ScalarHead.target."""
        probabilities = torch.softmax(next_outputs, -1)  # (N, B, K)
        careful = (probabilities @ self.centres.unsqueeze(-1)).argmin(0, keepdim=True)  # (1, B, 1)
        chosen = probabilities.gather(0, careful.expand(1, *probabilities.shape[1:]))[0]
        centres = self.centres.expand(len(reward), -1)
        returns = losses.q_target(reward, discount, _less(centres, next_cost), gamma)
        return losses.project_to_bins(chosen, returns, self.bounds)

    def loss(self, outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        return losses.cross_entropy(outputs, target, weight)

    def td_error(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return losses.td_error(self.values(outputs), target @ self.centres.unsqueeze(-1))


def _less(values: torch.Tensor, cost: torch.Tensor | None) -> torch.Tensor:
    return values if cost is None else values - cost
