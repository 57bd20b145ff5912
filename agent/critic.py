"""Critics: an ensemble of Q networks; DoubleQCritic is its two-member case."""

import torch
from torch import nn

from agent.mlp import mlp
from utils import NonNegativeInt, PositiveInt


class DoubleQCritic(nn.Module):
    """`num_critics` independent MLPs on [o, a], as one batched product.

    Args:
        obs_dim, action_dim: widths of observation and action.
        hidden_dim, hidden_depth: of each member's hidden layers.
        num_critics: members; system A has two.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_dim: PositiveInt,
        hidden_depth: NonNegativeInt,
        num_critics: PositiveInt = 2,
    ):
        super().__init__()
        self.trunk = mlp(obs_dim + action_dim, hidden_dim, 1, hidden_depth, num_members=num_critics)

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """All members' values, (N, B, 1); `q1, q2 = critic(obs, action)` unpacks the two of a double critic."""
        return self.trunk(torch.cat([obs, action], dim=-1))
