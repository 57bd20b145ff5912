"""Scales that follow the data: mean and deviation of the observations, the spread of the returns for the rewards.

Both see every training transition before an update can draw it, and nothing of an evaluation. Batches and acting read
them from tensors that change in place, so a captured CUDA graph goes by the newest ones.
"""

import math
from typing import Annotated, Any

import numpy as np
import torch
from torch import nn

from settings.types import Factory, Part, PositiveFloat, PositiveInt
from settings.validated import Validated

ObservationNormaliserFactory = Annotated[
    Factory, Part("a normaliser of observations", ("obs_dim",), ("forward", "observe"))
]
RewardNormaliserFactory = Annotated[Factory, Part("a normaliser of rewards", ("device",), ("__call__", "observe"))]
EPSILON = 1e-8  # beside the variance: an element that never changes is divided by 1e-4, not by 0


class ObservationNormaliser(nn.Module, Validated):
    """(o - mean) / sqrt(variance + 1e-8), each element by itself, over all observations so far (arXiv 2410.09754).

    Before the first one it changes nothing. Samples are put together pairwise (Chan, Golub and LeVeque), in float64:
    nothing large cancels, however far the mean is from 0.

    Args:
        obs_dim: width of the observation.
    """

    def __init__(self, obs_dim: PositiveInt):
        super().__init__()
        self.mean: torch.Tensor
        self.variance: torch.Tensor
        self.shift: torch.Tensor
        self.scale: torch.Tensor
        self.count = 0
        self.register_buffer("mean", torch.zeros(obs_dim, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(obs_dim, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(obs_dim))  # what is subtracted, and then multiplied by
        self.register_buffer("scale", torch.ones(obs_dim))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """(..., obs_dim) -> (..., obs_dim), float32."""
        return (obs - self.shift).mul_(self.scale)

    @torch.no_grad()
    def observe(self, obs: np.ndarray) -> None:
        """Counts observations (B, obs_dim) in."""
        rows = torch.from_numpy(obs)
        if self.mean.is_cuda:  # torch keeps the pinned copy until the device has it; nothing waits here
            rows = rows.pin_memory()
        rows = rows.to(self.mean.device, non_blocking=True)
        new_variance, new_mean = torch.var_mean(rows.double(), dim=0, correction=0)
        self.count += len(obs)
        share = len(obs) / self.count  # the new ones' part of all
        step = new_mean - self.mean
        self.mean.lerp_(new_mean, share)
        self.variance.lerp_(new_variance, share).addcmul_(step, step, value=share * (1 - share))
        self.shift.copy_(self.mean)
        self.scale.copy_(torch.rsqrt(self.variance + EPSILON))

    def get_extra_state(self) -> int:
        """The count, which the buffers in `state_dict` go with."""
        return self.count

    def set_extra_state(self, state: int) -> None:
        self.count = state


class RewardNormaliser(Validated):
    """Divides rewards by the deviation of the discounted return, or by its largest magnitude / bound if that is more.

    So no discounted return is beyond `bound`, which is where a categorical critic's support ends (arXiv 2604.04539);
    with none, it is the deviation that counts alone (arXiv 2509.25174).
    The return of each environment runs forward, G <- r + gamma G, from 0 at the start of an episode. Until a reward
    differs from 0, nothing is divided.

    Args:
        device: where batches are.
        bound: of the magnitude of discounted returns; None is none.
    """

    def __init__(self, device: torch.device, bound: PositiveFloat | None = 5.0):
        self._bound = bound
        self._scale = torch.ones((), device=device)
        self._running = np.zeros(0)  # of each environment's episode so far, (num_envs,)
        self._count = 0
        self._mean = self._variance = self._largest = 0.0

    def __call__(self, reward: torch.Tensor) -> torch.Tensor:
        """Rewards, or sums of them, (B, 1) -> (B, 1)."""
        return reward * self._scale

    def observe(self, reward: np.ndarray, ended: np.ndarray, discount: float) -> None:
        """Counts one step of every environment in.

        Args:
            reward: (num_envs,), raw.
            ended: (num_envs,), bool: whether the episode ended with it, for whatever reason.
            discount: gamma.
        """
        before = self._running if self._count else np.zeros(len(reward))
        returns = reward + discount * before
        self._count += len(returns)
        share, step = len(returns) / self._count, float(returns.mean()) - self._mean
        self._mean += share * step
        self._variance += share * (float(returns.var()) - self._variance + (1 - share) * step * step)
        self._largest = max(self._largest, float(np.abs(returns).max()))
        self._running = np.where(ended, 0.0, returns)
        self._show()

    def _show(self) -> None:
        spread = math.sqrt(self._variance)
        if self._bound is not None:
            spread = max(spread, self._largest / self._bound)
        self._scale.fill_(1 / spread if spread else 1.0)

    def state_dict(self) -> dict[str, Any]:
        moments = {"count": self._count, "mean": self._mean, "variance": self._variance, "largest": self._largest}
        return moments | {"running": self._running.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._count, self._mean, self._variance = state["count"], state["mean"], state["variance"]
        self._largest = state["largest"]
        self._running = np.array(state["running"])
        self._show()
