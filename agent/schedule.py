"""Schedules of values over environment steps: pure functions of the step, so that resuming at a step resumes them."""

import math
from typing import TYPE_CHECKING

from agent.toolkit.hooks import Scheduled
from settings.types import PositiveFloat, PositiveInt, Schedule


class Linear:
    """Changes linearly from `start` to `final` over `steps` steps, then stays at `final`."""

    def __init__(self, start: float, final: float, steps: PositiveInt):
        self.start, self.final, self.steps = start, final, steps

    def __call__(self, step: int) -> float:
        return self.start + (self.final - self.start) * min(step / self.steps, 1.0)


class Cosine(Linear):
    """Changes from `start` to `final` along half a cosine over `steps` steps, then stays at `final`."""

    def __call__(self, step: int) -> float:
        done = min(step / self.steps, 1.0)
        return self.final + (self.start - self.final) * (1 + math.cos(math.pi * done)) / 2


class Exponential:
    """final + (start - final) exp(-step / decay)."""

    def __init__(self, start: float, final: float, decay: PositiveFloat):
        self.start, self.final, self.decay = start, final, decay

    def __call__(self, step: int) -> float:
        return self.final + (self.start - self.final) * math.exp(-step / self.decay)


class Schedules(Scheduled):
    """Holds the numbers of an agent that may follow a schedule; they are read as attributes: `schedules.discount`."""

    def __init__(self, **values: float | Schedule):
        self._step = 0
        self._schedules: dict[str, Schedule] = {}
        self.add(**values)

    def add(self, **values: float | Schedule) -> None:
        self._schedules |= {name: value for name, value in values.items() if callable(value)}
        self.__dict__.update({name: value for name, value in values.items() if not callable(value)})
        self.set_step(self._step)

    @property
    def changing(self) -> list[str]:
        """The names of the numbers that follow a schedule."""
        return list(self._schedules)

    def set_step(self, step: int) -> None:
        self._step = step
        for name, schedule in self._schedules.items():
            self.__dict__[name] = schedule(step)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> float: ...

    def state_dict(self) -> dict[str, int]:
        return {"step": self._step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.set_step(state["step"])
