"""The random numbers of an update: one stream, in the order in which the update asks for them."""

from typing import Any

import torch
from torch import Tensor


class Noise:
    """The source of an update's random numbers, from a policy's generator, on its device."""

    def __init__(self, policy: Any):
        self._policy = policy

    def normal(self, *shape: int) -> Tensor:
        """Returns standard normal numbers."""
        return torch.randn(shape, device=self._policy.device, generator=self._policy.generator)

    def uniform(self, *shape: int) -> Tensor:
        """Returns uniform numbers from [0, 1)."""
        return torch.rand(shape, device=self._policy.device, generator=self._policy.generator)
