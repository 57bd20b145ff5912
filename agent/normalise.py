"""Running normalisation of observations, by mean and standard deviation, and of rewards, by the spread of returns.

Both see each training transition before an update can draw it, but no evaluation transitions. Their scales are tensors
that change in place, so a captured CUDA graph reads the newest ones.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from settings.types import PositiveFloat, PositiveInt

EPSILON = 1e-8  # added to the variance: an element that never changes is divided by 1e-4, not by 0


class ObservationNormaliser(nn.Module):
    """(o - mean) / sqrt(variance + 1e-8) of each element, over all observations so far (arXiv 2410.09754).

    Before the first observation it changes nothing. Batches are merged pairwise in float64 (Chan, Golub and LeVeque),
    which is stable however far the mean is from 0.
    """

    def __init__(self, obs_dim: PositiveInt):
        super().__init__()
        self.count = 0
        self.mean = nn.Buffer(torch.zeros(obs_dim, dtype=torch.float64))
        self.variance = nn.Buffer(torch.ones(obs_dim, dtype=torch.float64))
        self.shift = nn.Buffer(torch.zeros(obs_dim))  # normalised = (obs - shift) * scale
        self.scale = nn.Buffer(torch.ones(obs_dim))

    def forward(self, obs: Tensor) -> Tensor:
        """Normalises (..., obs_dim), float32, or only the first elements of it, as in the actor's observation group."""
        width = obs.shape[-1]
        return (obs - self.shift[:width]).mul_(self.scale[:width])

    @torch.no_grad()
    def observe(self, obs: np.ndarray | Tensor) -> None:
        """Includes observations (B, obs_dim) in the statistics."""
        rows = torch.as_tensor(obs)
        if self.mean.is_cuda and not rows.is_cuda:  # torch keeps pinned memory until the copy is done; nothing waits
            rows = rows.pin_memory()
        rows = rows.to(self.mean.device, non_blocking=True)
        new_variance, new_mean = torch.var_mean(rows.double(), dim=0, correction=0)
        self.count += len(obs)
        share = len(obs) / self.count  # of the new observations
        step = new_mean - self.mean
        self.mean.lerp_(new_mean, share)
        self.variance.lerp_(new_variance, share).addcmul_(step, step, value=share * (1 - share))
        self.shift.copy_(self.mean)
        self.scale.copy_(torch.rsqrt(self.variance + EPSILON))

    def get_extra_state(self) -> int:
        return self.count

    def set_extra_state(self, state: int) -> None:
        self.count = state


class RewardNormaliser:
    """Divides rewards by the standard deviation of the discounted return G, or by max |G| / bound if that is larger.

    So |G| stays within `bound`, the support of a categorical critic (arXiv 2604.04539); without a bound, only the
    standard deviation is used (arXiv 2509.25174). Each environment's return runs forward, G <- r + gamma (1 - ended) G.
    As in both papers' code, the last step of an episode is not added to its return: G becomes the last reward alone,
    and the next episode's return continues from it. Rewards stay unchanged until one of them differs from 0.
    """

    def __init__(self, device: torch.device, bound: PositiveFloat | None = 5.0):
        self._bound = bound
        self._scale = torch.ones((), device=device)
        self._running = np.zeros(0)  # G of each environment, (num_envs,)
        self._count = 0
        self._mean = self._variance = self._largest = 0.0

    def __call__(self, reward: Tensor) -> Tensor:
        """Normalises rewards, or discounted sums of them, (B, 1)."""
        return reward * self._scale

    def observe(self, reward: np.ndarray, ended: np.ndarray, discount: float) -> None:
        """Includes one step of every environment in the statistics; a new number of them begins new returns.

        `reward` (num_envs,) is raw; `ended` (num_envs,), bool, says whether the episode terminated or was truncated.
        """
        before = self._running if len(self._running) == len(reward) else np.zeros(len(reward))
        returns = reward + discount * np.where(ended, 0.0, before)
        self._count += len(returns)
        share, step = len(returns) / self._count, float(returns.mean()) - self._mean
        self._mean += share * step
        self._variance += share * (float(returns.var()) - self._variance + (1 - share) * step * step)
        self._largest = max(self._largest, float(np.abs(returns).max()))
        self._running = returns
        self._set_scale()

    def _set_scale(self) -> None:
        spread = math.sqrt(self._variance)
        if self._bound is not None:
            spread = max(spread, self._largest / self._bound)
        self._scale.fill_(1 / spread if spread else 1.0)

    def state_dict(self) -> dict[str, Any]:
        moments = {"count": self._count, "mean": self._mean, "variance": self._variance, "largest": self._largest}
        return moments | {"running": self._running.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._count, self._mean, self._variance = state["count"], state["mean"], state["variance"]
        self._largest, self._running = state["largest"], np.array(state["running"])
        self._set_scale()
