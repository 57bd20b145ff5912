"""Critics: an ensemble of Q networks, and a value network."""

from functools import partial

import torch
from torch import nn

from agent.mlp import Init, mlp
from utils import NonNegativeInt, PositiveFloat, PositiveInt


class CriticEnsemble(nn.Module):
    """`num_critics` independent MLPs on [o, a], as one batched product.

    Args:
        obs_dim, action_dim: widths of observation and action.
        hidden_dim, hidden_depth: of each member's hidden layers.
        num_critics: members; their minimum is what targets and the actor use.
        init, last_init_bound: of the layers and of the last one (see agent.mlp).
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_dim: PositiveInt,
        hidden_depth: NonNegativeInt,
        num_critics: PositiveInt = 2,
        init: Init = "orthogonal",
        last_init_bound: PositiveFloat | None = None,
    ):
        super().__init__()
        self.trunk = mlp(obs_dim + action_dim, hidden_dim, 1, hidden_depth, num_critics, init, last_init_bound)

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """All members' values, (N, B, 1); `q1, q2 = critic(obs, action)` unpacks the two of a double critic."""
        return self.trunk(obs, action)


DoubleQCritic = partial(CriticEnsemble, num_critics=2)


class ValueNetwork(nn.Module):
    """An MLP from an observation to its value V, (B, obs_dim) -> (B, 1).

    Args:
        obs_dim: width of the observation.
        hidden_dim, hidden_depth: of the hidden layers.
        init, last_init_bound: of the layers and of the last one (see agent.mlp).
    """

    def __init__(
        self,
        obs_dim: int,
        hidden_dim: PositiveInt,
        hidden_depth: NonNegativeInt,
        init: Init = "orthogonal",
        last_init_bound: PositiveFloat | None = None,
    ):
        super().__init__()
        self.trunk = mlp(obs_dim, hidden_dim, 1, hidden_depth, None, init, last_init_bound)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.trunk(obs)
