"""Critics: an ensemble of Q networks, and a value network."""

from functools import partial

from torch import Tensor, nn
from torch.func import functional_call

from agent.networks.encoder import FromNumbers
from agent.networks.heads import ScalarHead
from agent.networks.mlp import Init, Shape, build_network
from agent.toolkit.hooks import Draws
from settings.types import Factory, NonNegativeInt, PositiveFloat, PositiveInt


class CriticEnsemble(nn.Module):
    """`num_critics` independent Q networks, computed in batched matmuls.

    `network` and `head` are factories (agent.networks.residual, agent.networks.heads); None: the plain MLP, ScalarHead.
    """

    def __init__(
        self,
        obs_dim: PositiveInt,
        action_dim: PositiveInt,
        hidden_dim: PositiveInt,
        hidden_depth: NonNegativeInt,
        num_critics: PositiveInt = 2,
        init: Init = "orthogonal",
        last_init_bound: PositiveFloat | None = None,
        network: Factory | None = None,
        head: Factory | None = None,
    ):
        super().__init__()
        self.head = ScalarHead() if head is None else head()
        in_dim, out_dim = self._widths(obs_dim, action_dim)
        shape = Shape(in_dim, hidden_dim, out_dim, hidden_depth, num_critics, init, last_init_bound)
        self.trunk = build_network(network, shape)

    def _widths(self, obs_dim: int, action_dim: int) -> tuple[int, int]:
        return obs_dim + action_dim, self.head.out_dim

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Returns the members' Q values, (N, B, 1)."""
        return self.head.values(self.trunk(obs, action))

    def outputs(self, obs: Tensor, action: Tensor) -> Tensor:
        """Returns the raw outputs, (N, B, head.out_dim), which the head turns into values, targets and losses."""
        return self.trunk(obs, action)


class DiscreteCriticEnsemble(CriticEnsemble):
    """A CriticEnsemble for discrete actions: maps an observation to the values of all `action_dim` actions."""

    def _widths(self, obs_dim: int, action_dim: int) -> tuple[int, int]:
        return obs_dim, action_dim * self.head.out_dim

    def forward(self, obs: Tensor) -> Tensor:  # type: ignore[override]
        """Returns the members' Q values, (N, B, |A|)."""
        return self.head.values(self.trunk(obs).unflatten(-1, (-1, self.head.out_dim))).squeeze(-1)

    def outputs(self, obs: Tensor) -> Tensor:  # type: ignore[override]
        """Returns the raw outputs, (N, B, |A| * head.out_dim)."""
        return self.trunk(obs)


DoubleQCritic = partial(CriticEnsemble, num_critics=2)


class RandomSubset(Draws):
    """Computes the outputs of `count` random members of an ensemble, drawn anew in each call (arXiv 2101.05982)."""

    def __init__(self, critic: CriticEnsemble | FromNumbers, count: int):
        self._inputs = critic.inputs if isinstance(critic, FromNumbers) else None
        self._trunk = critic.network.trunk if isinstance(critic, FromNumbers) else critic.trunk
        self._count, self._num_critics = count, len(next(self._trunk.parameters()))

    def __call__(self, obs: Tensor, *action: Tensor) -> Tensor:
        # Not torch.multinomial, which may read its weights on the host and so wait for a GPU.
        members = self.noise.uniform(self._num_critics).topk(self._count).indices
        tensors = (*self._trunk.named_parameters(), *self._trunk.named_buffers())
        subset = {name: tensor.index_select(0, members) for name, tensor in tensors}
        return functional_call(self._trunk, subset, (obs if self._inputs is None else self._inputs(obs), *action))


class ValueNetwork(nn.Module):
    """An MLP from an observation to its value V, (B, obs_dim) -> (B, 1)."""

    def __init__(
        self,
        obs_dim: PositiveInt,
        hidden_dim: PositiveInt,
        hidden_depth: NonNegativeInt,
        init: Init = "orthogonal",
        last_init_bound: PositiveFloat | None = None,
    ):
        super().__init__()
        self.trunk = build_network(None, Shape(obs_dim, hidden_dim, 1, hidden_depth, None, init, last_init_bound))

    def forward(self, obs: Tensor) -> Tensor:
        return self.trunk(obs)
