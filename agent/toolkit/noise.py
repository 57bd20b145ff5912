"""The random numbers of an update step: drawn before it, so that a recording takes them as inputs.

The first update of a process rehearses: what the step asks for then, with everything due, is drawn before every update
from there on, asked for or not. So the numbers do not depend on what is due, and a resumed run draws the same.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch

from utils import UserError

Shape = tuple[int, ...]


class Noise(ABC):
    """What an update step draws from: standard normal numbers, or uniform ones from [0, 1), in any shape."""

    @abstractmethod
    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers, float32, on the agent's device."""

    @abstractmethod
    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform numbers from [0, 1), float32, on the agent's device."""


class Plan(NamedTuple):
    """The shapes that an update step asks for, in their order."""

    normal: list[Shape]
    uniform: list[Shape]

    def draw(self, device: torch.device, generator: torch.Generator) -> list[torch.Tensor]:
        """All of them, flat: one tensor for each kind."""
        counts = [sum(map(math.prod, shapes)) for shapes in self]
        return [
            torch.randn(counts[0], device=device, generator=generator),
            torch.rand(counts[1], device=device, generator=generator) if counts[1] else torch.empty(0, device=device),
        ]


class Rehearsed(Noise):
    """Notes what is asked for.

    Args:
        device: of the numbers, which come from a generator of its own.
    """

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


class Drawn(Noise):
    """Hands out what was drawn by a plan.

    Args:
        plan: of the rehearsal.
        numbers: as `plan.draw` returned them.
    """

    def __init__(self, plan: Plan, numbers: Sequence[torch.Tensor]):
        self._shapes = {kind: list(shapes) for kind, shapes in plan._asdict().items()}
        self._parts = {
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
        return self._parts[kind].pop(0).view(shape)
