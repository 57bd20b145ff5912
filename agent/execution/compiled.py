"""Update steps under torch.compile, which knows no generators: random numbers are drawn before each step."""

import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor

from agent.execution import Result
from agent.toolkit.adam import Adam
from agent.toolkit.hooks import Noise

BACKEND = "inductor"


class _NotedNoise(Noise):
    """Notes what is asked for, and returns numbers of no meaning."""

    def __init__(self, device: torch.device):
        self._device = device
        self.requests: list[tuple[str, tuple[int, ...]]] = []

    def normal(self, *shape: int) -> Tensor:
        return self._note("normal", shape)

    def uniform(self, *shape: int) -> Tensor:
        return self._note("uniform", shape)

    def _note(self, kind: str, shape: tuple[int, ...]) -> Tensor:
        self.requests.append((kind, shape))
        return torch.full(shape, 0.5, device=self._device)


class _DrawnNoise(Noise):
    """Returns numbers that were drawn before, in order."""

    def __init__(self, numbers: list[Tensor]):
        self._numbers = numbers

    def normal(self, *shape: int) -> Tensor:
        return self._numbers.pop(0)

    uniform = normal


class CompiledStep:
    """An agent's update step, gradients included, compiled once for each variant.

    The first step of a variant is made in Python first, and undone, to note which random numbers it asks for. So all
    steps that count are compiled, also in a resumed run.
    """

    def __init__(self, agent: Any):
        torch._dynamo.config.trace_autograd_ops = True
        _leave_out_adam()
        self._agent = agent
        self._compiled = torch.compile(agent.update_step, backend=BACKEND, dynamic=False)
        self._requests: dict[Any, list[tuple[str, tuple[int, ...]]]] = {}

    def __call__(self, batch: Any, noise: Noise) -> Result:
        requests = self._requests.get(self._key(batch))
        if requests is None:
            requests = self._note_requests(batch)
            self._requests[self._key(batch)] = requests  # the step may have asked more of `due`
        drawn = _DrawnNoise([getattr(noise, kind)(*shape) for kind, shape in requests])
        self._agent.give_noise(drawn)
        return self._compiled(batch, drawn)

    def _note_requests(self, batch: Any) -> list[tuple[str, tuple[int, ...]]]:
        agent, noted = self._agent, _NotedNoise(self._agent.device)
        state = copy.deepcopy(agent.state_dict())
        agent.give_noise(noted)
        agent.update_step(batch, noted)
        agent.load_state_dict(state)
        return noted.requests

    def _key(self, batch: Any) -> Any:
        return type(batch), len(batch.obs), self._agent.variant


@cache
def _leave_out_adam() -> None:
    """Excludes Adam, one kernel already, from compilation. Not done in adam.py: torch's compiler is slow to import."""
    Adam.step = torch.compiler.disable(Adam.step)  # type: ignore[method-assign]
