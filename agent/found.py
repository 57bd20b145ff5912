"""What is found in an agent's attributes, so that its author declares nothing twice."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from torch import nn

from agent.execution.parts import AfterStep, Draws, FollowsBatches, FollowsSteps, Phased
from agent.execution.views import is_view


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


class Finds:
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
