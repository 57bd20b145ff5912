"""Base classes for layers and other objects that act around an update. The agent finds every instance in its modules
and attributes (agent/off_policy.py)."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class AfterStep(ABC):
    """Corrects parameters right after each step of their optimizer, such as weights back to unit length."""

    @abstractmethod
    def after_step(self) -> None:
        """Called with gradients disabled."""


class TracksBatchStatistics(ABC):
    """Keeps statistics of training batches, updated after the backward pass, which reads the old ones."""

    @abstractmethod
    def track(self) -> None:
        """Called after every optimizer step, even if no batch has passed since the last call."""


class Scheduled(ABC):
    """Has values on a schedule of the environment step."""

    @abstractmethod
    def set_step(self, step: int) -> None:
        """Called before each update with the number of environment steps so far."""


class Phased(ABC):
    """Changes its computation at some update. Each phase gets a separate recording, so none pays for another."""

    @abstractmethod
    def enter_phase(self) -> Hashable:
        """Called before each update; returns the phase, which must not change until the next call."""


@dataclass
class Noise:
    """The random numbers of an update: one stream, in the order in which the update asks for them."""

    policy: Any  # has the generator

    def normal(self, *shape: int) -> Tensor:
        """Returns standard normal numbers."""
        return torch.randn(shape, device=self.policy.device, generator=self.policy.generator)

    def uniform(self, *shape: int) -> Tensor:
        """Returns uniform numbers from [0, 1)."""
        return torch.rand(shape, device=self.policy.device, generator=self.policy.generator)


class Draws:
    """Draws random numbers in updates, from `self.noise.normal(...)` and `self.noise.uniform(...)`."""

    noise: Any = None  # the update's Noise; None elsewhere
