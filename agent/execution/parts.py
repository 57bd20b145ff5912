"""What a part of a network may ask of the update around it. An agent finds such parts in its modules by these classes.

A part inherits from the class and writes its method; one that forgets it cannot be built.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable

import torch


class AfterStep(ABC):
    """Puts parameters right after each step of their optimizer, such as weights back to unit length."""

    @abstractmethod
    def after_step(self) -> None:
        """Called without gradients."""


class FollowsBatches(ABC):
    """Has statistics that follow the batches of training, once the backward pass has read the old ones."""

    @abstractmethod
    def follow(self) -> None:
        """Called after the optimizers' step, whether or not a batch has passed since the last call."""


class FollowsSteps(ABC):
    """Has numbers on a schedule of the environment step."""

    @abstractmethod
    def set_step(self, step: int) -> None:
        """Called before each update, with the environment steps so far."""


class Phased(ABC):
    """Computes in another way from some update on. Each way is recorded for itself, so none pays for the other."""

    @abstractmethod
    def enter_phase(self) -> Hashable:
        """Called before each update; until the next call the part computes as what it returns stands for."""


class Draws(ABC):
    """Draws at random. It does so before an update, so that a recorded or captured update has only to read it."""

    @abstractmethod
    def rehearse(self) -> None:
        """From here on, notes what one update asks of it."""

    @abstractmethod
    def draw(self, generator: torch.Generator) -> None:
        """Draws for the update to come, into memory that stays where it is."""
