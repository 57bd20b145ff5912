"""The random numbers of an update step. They are drawn before the step so that a recording takes them as inputs.

The first update of a process is rehearsed with everything due. The numbers that the step requests then are drawn
before every later update, even if the step does not use them all. So the draws do not depend on what is due, and a
resumed run draws the same numbers.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch

from utils import UserError

Shape = tuple[int, ...]


class Noise(ABC):
    """The source of an update step's random numbers: standard normal, or uniform in [0, 1), in any shape."""

    @abstractmethod
    def normal(self, *shape: int) -> torch.Tensor:
        """Returns standard normal numbers, float32, on the agent's device."""

    @abstractmethod
    def uniform(self, *shape: int) -> torch.Tensor:
        """Returns uniform numbers from [0, 1), float32, on the agent's device."""


class Plan(NamedTuple):
    """The shapes that an update step asks for, in order."""

    normal: list[Shape]
    uniform: list[Shape]

    def draw(self, device: torch.device, generator: torch.Generator) -> list[torch.Tensor]:
        """Draws all numbers of an update; returns a flat tensor of normal numbers and one of uniform numbers."""
        num_normal, num_uniform = (sum(map(math.prod, shapes)) for shapes in self)
        return [
            torch.randn(num_normal, device=device, generator=generator),
            torch.rand(num_uniform, device=device, generator=generator)
            if num_uniform
            else torch.empty(0, device=device),
        ]


class RehearsedNoise(Noise):
    """Draws on request, from a separate generator, and records the shapes in `plan`."""

    def __init__(self, device: torch.device):
        self.plan = Plan([], [])
        self._device = device
        self._generator = torch.Generator(device).manual_seed(0)

    def normal(self, *shape: int) -> torch.Tensor:
        self.plan.normal.append(shape)
        return torch.randn(shape, device=self._device, generator=self._generator)

    def uniform(self, *shape: int) -> torch.Tensor:
        self.plan.uniform.append(shape)
        return torch.rand(shape, device=self._device, generator=self._generator)


class DrawnNoise(Noise):
    """Returns the numbers that a plan has drawn, each once.

    Args:
        plan: the plan from the rehearsal.
        numbers: what `plan.draw` returned.
    """

    def __init__(self, plan: Plan, numbers: Sequence[torch.Tensor]):
        self.plan, self.numbers = plan, numbers
        self._shapes = {kind: list(shapes) for kind, shapes in plan._asdict().items()}
        self._remaining = {
            kind: list(flat.split([math.prod(shape) for shape in shapes])) if shapes else []
            for kind, flat, shapes in zip(plan._fields, numbers, plan, strict=True)
        }

    def normal(self, *shape: int) -> torch.Tensor:
        return self._next("normal", shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        return self._next("uniform", shape)

    def _next(self, kind: str, shape: Shape) -> torch.Tensor:
        planned = self._shapes[kind].pop(0) if self._shapes[kind] else None
        if planned != shape:
            raise UserError(
                f"update_step asked for noise.{kind}{shape}, and for {planned} in its place when everything was due; "
                "it has to ask for the same in the same order, and may leave out the last"
            )
        return self._remaining[kind].pop(0).view(shape)
