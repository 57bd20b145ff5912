"""Small helpers with no home of their own: errors, number types for signatures, seeds, eval mode, soft updates."""

import copy
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import AfterValidator

# Types of configuration values. A key's type is its parameter's annotation (see settings.py).
PositiveInt = Annotated[int, Gt(0)]
NonNegativeInt = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
UnitInterval = Annotated[float, Ge(0), Le(1)]
Betas = tuple[Annotated[float, Ge(0), Lt(1)], Annotated[float, Ge(0), Lt(1)]]  # Adam's
Points = Annotated[list[tuple[int, float]], MinLen(1)]  # (step, value)


def _increasing(bounds: tuple[float, float]) -> tuple[float, float]:
    if not bounds[0] < bounds[1]:
        raise ValueError("the lower bound comes first")
    return bounds


Bounds = Annotated[tuple[float, float], AfterValidator(_increasing)]
Factory = Callable[..., Any]  # a YAML node with `_partial_: true`; the code adds the shapes
Schedule = Callable[[int], float]  # environment steps so far -> a value (see agent/schedule.py)
Execution = Literal["auto", "eager", "compiled", "captured", "compiled_captured"]  # see agent/execution.py
Storage = Literal["auto", "host", "pinned", "device"]  # see device_buffer.py

# The streams of randomness that environments draw their episodes from.
TRAIN_STREAM, EVAL_STREAM = 0, 1


class UserError(Exception):
    """A mistake of the caller's: its message is one line that names the key, the value and what would be right."""


def episode_seed(run_seed: int, stream: int, *counters: int) -> int:
    """The seed of one episode, a function of nothing but its arguments.

    Args:
        run_seed: the run's seed, 0 or more.
        stream: TRAIN_STREAM or EVAL_STREAM; two streams share no episode.
        counters: what tells episodes of a stream apart, such as (environment index, episode number).

    Returns:
        An int in [0, 2**32), which every environment family accepts.
    """
    return int(np.random.SeedSequence([run_seed, stream, *counters]).generate_state(1)[0])


def set_seed_everywhere(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's (CPU and GPU) global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextmanager
def eval_mode(*agents: Any) -> Iterator[None]:
    """Switches agents (anything with `.training` and `.train(bool)`) to evaluation and back."""
    before = [agent.training for agent in agents]
    for agent in agents:
        agent.train(False)
    try:
        yield
    finally:
        for agent, training in zip(agents, before, strict=True):
            agent.train(training)


def constant_view(module: torch.nn.Module) -> Any:
    """The same module on the same memory, whose parameters get no gradient: what flows through it reaches its inputs.

    It sees every later change in place, such as an optimizer's step or `load_state_dict`.
    """
    shared: dict[int, Any] = {id(tensor): tensor for tensor in module.buffers()}
    for parameter in module.parameters():
        shared[id(parameter)] = torch.nn.Parameter(parameter.detach(), requires_grad=False)
    return copy.deepcopy(module, shared)


class SoftUpdate:
    """Moves a target network towards another in place: `target += tau * (net - target)`, in one multi-tensor call."""

    def __init__(self, net: torch.nn.Module, target_net: torch.nn.Module):
        self._net, self._target = list(net.parameters()), list(target_net.parameters())

    @torch.no_grad()
    def __call__(self, tau: float) -> None:
        torch._foreach_lerp_(self._target, self._net, tau)


def soft_update_params(net: torch.nn.Module, target_net: torch.nn.Module, tau: float) -> None:
    """One `SoftUpdate`, where it is not made in every step."""
    SoftUpdate(net, target_net)(tau)


def resolve_device(name: str) -> torch.device:
    """Turns a configured device into one that exists; `auto` is cuda where there is one, else cpu.

    Raises:
        UserError: for a name torch does not know, or a device this machine lacks.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device={name}: no such device; choose auto, cpu, cuda or cuda:<index>") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise UserError(f"device={name}: {found} NVIDIA GPU(s) found here; choose auto or cpu") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device={name}: only cpu and cuda are supported; choose auto, cpu, cuda or cuda:<index>")
    return device


def write_atomically(path: Path, text: str) -> None:
    """Writes a text file so that a reader, or a crash, sees either the old content or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


class Every:
    """Says when a multiple of `frequency` was crossed since it was last asked (0 or less: never)."""

    def __init__(self, frequency: int, start: int = 0):
        self.frequency = frequency
        self.last_step = start

    def __call__(self, step: int) -> bool:
        crossed = self.frequency > 0 and step // self.frequency > self.last_step // self.frequency
        self.last_step = step
        return crossed

    def state_dict(self) -> dict[str, int]:
        return {"last_step": self.last_step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.last_step = state["last_step"]
