"""Update steps under torch.compile, which knows no generators: random numbers are drawn before each step."""

from functools import cache
from typing import Any

import torch

from agent.execution.eager import Result, variant
from agent.toolkit.adam import Adam
from agent.toolkit.noise import Noise


class _NotedNoise(Noise):
    """Draws, and notes what was asked for."""

    def __init__(self, noise: Noise):
        self._noise = noise
        self.requests: list[tuple[str, tuple[int, ...]]] = []

    def normal(self, *shape: int) -> torch.Tensor:
        self.requests.append(("normal", shape))
        return self._noise.normal(*shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        self.requests.append(("uniform", shape))
        return self._noise.uniform(*shape)


class _DrawnNoise(Noise):
    """Returns numbers that were drawn before, in order."""

    def __init__(self, numbers: list[torch.Tensor]):
        self._numbers = numbers

    def normal(self, *shape: int) -> torch.Tensor:
        return self._numbers.pop(0)

    uniform = normal


class CompiledStep:
    """An agent's update step, gradients included, compiled once for each variant.

    The first step of a variant runs in Python and notes which random numbers it asks for; later ones draw the same.
    """

    def __init__(self, agent: Any, backend: str):
        torch._dynamo.config.trace_autograd_ops = True
        _leave_out_adam()
        self._agent = agent
        self._compiled = torch.compile(agent.update_step, backend=backend, dynamic=False)
        self._requests: dict[Any, list[tuple[str, tuple[int, ...]]]] = {}

    def __call__(self, batch: Any, noise: Noise) -> Result:
        requests = self._requests.get(self._key(batch))
        if requests is not None:
            drawn = _DrawnNoise([getattr(noise, kind)(*shape) for kind, shape in requests])
            self._agent.give_noise(drawn)
            return self._compiled(batch, drawn)
        noted = _NotedNoise(noise)
        self._agent.give_noise(noted)
        result = self._agent.update_step(batch, noted)
        self._requests[self._key(batch)] = noted.requests  # the step may have asked more of `due`
        return result

    def _key(self, batch: Any) -> Any:
        return type(batch), len(batch.obs), variant(self._agent)


@cache
def _leave_out_adam() -> None:
    """Excludes Adam, one kernel already, from compilation. Not done in adam.py: torch's compiler is slow to import."""
    Adam.step = torch.compiler.disable(Adam.step)  # type: ignore[method-assign]
