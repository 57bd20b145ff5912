"""What a part of a network may ask of the update around it. An agent finds such parts in its modules by these classes.

A part inherits from the class and writes its method; one that forgets it cannot be built.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any

import torch
from torch import nn

from agent.toolkit.frozen import is_view


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


def modules(agent: Any) -> dict[str, nn.Module]:
    """Its modules, by attribute; not views, which have another's state."""
    return {name: value for name, value in vars(agent).items() if isinstance(value, nn.Module) and not is_view(value)}


def stateful(agent: Any) -> dict[str, Any]:
    """Its attributes that have a state of their own to save: modules and whatever else has `load_state_dict`."""
    has_state = {name: value for name, value in vars(agent).items() if hasattr(value, "load_state_dict")}
    return {name: value for name, value in has_state.items() if not (isinstance(value, nn.Module) and is_view(value))}


def parts(of: Iterable[Any], kind: type) -> list[Any]:
    """Everything of a kind in some objects, or in the modules among them, once each and in order."""
    found: dict[int, Any] = {}
    for value in of:
        candidates = value.modules() if isinstance(value, nn.Module) else [value]
        found |= {id(part): part for part in candidates if isinstance(part, kind)}
    return list(found.values())


class HasParts:
    """What an agent finds in itself when it is first asked for, with its constructor long done.

    Attributes:
        schedules, optimizers: of the agent.
    """

    schedules: Any
    optimizers: dict[str, Any]
    _optimized: dict[str, nn.Module]  # the module of each

    @property
    def modules(self) -> dict[str, nn.Module]:
        """The modules with a state, by attribute; views share another's."""
        return modules(self)

    @cached_property
    def _after_step(self) -> dict[str, list[Any]]:
        return {name: parts([module], AfterStep) for name, module in self._optimized.items()}

    @cached_property
    def _follow_batches(self) -> list[Any]:
        return parts(self.modules.values(), FollowsBatches)

    @cached_property
    def _follow_steps(self) -> list[Any]:
        return parts([self.schedules, *self.optimizers.values(), *self.modules.values()], FollowsSteps)

    @cached_property
    def _phased(self) -> list[Any]:
        return parts(self.modules.values(), Phased)

    @cached_property
    def _draw(self) -> list[Any]:
        return parts(vars(self).values(), Draws)

    def rehearse_parts(self) -> None:
        """Lets everything that draws note what the update to come asks of it."""
        for part in self._draw:
            part.rehearse()
