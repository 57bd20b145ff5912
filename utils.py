"""Small helpers with no home of their own: errors, number types for signatures, seeds, eval mode, soft updates."""

import copy
import ctypes
import os
import platform
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
Execution = Literal["auto", "eager", "recorded", "compiled", "captured", "compiled_captured"]  # see agent/execution.py
Storage = Literal["auto", "host", "pinned", "device"]  # see device_buffer.py

FLOAT32_MAX = float(np.finfo(np.float32).max)

# The streams of randomness that environments draw their episodes from.
TRAIN_STREAM, EVAL_STREAM = 0, 1


class UserError(Exception):
    """A mistake of the caller's: its message is one line that names the key, the value and what would be right."""


class RunError(Exception):
    """A fault that ends a run and loses nothing: its message is one line that says what was wrong."""


class Stopped(KeyboardInterrupt):
    """A signal ended the run after its state was saved. Like Ctrl-C, it ends a sweep too.

    Args:
        message: one line.
        exit_code: of the process.
    """

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


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


def random_state(device: torch.device) -> dict[str, Any]:
    """Python's, NumPy's and torch's global generators, and the device's: tensors and plain values."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    numpy_state = (kind, np.asarray(keys).tolist(), *rest)
    state = {"python": random.getstate(), "numpy": numpy_state, "torch": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restores what `random_state` returned; a GPU's only on a GPU."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def require_finite(what: str, values: np.ndarray) -> None:
    """Raises RunError, naming the first element that is no finite float32."""
    finite = np.abs(values) <= FLOAT32_MAX  # false for nan
    if not finite.all():
        where = np.argwhere(~finite)[0]
        raise RunError(f"{what}{where.tolist()} is {values[tuple(where)]}")


def non_finite(state: Any, name: str) -> str | None:
    """The dotted name of the first tensor with an element that is not finite in a nested state; None if all are."""
    if isinstance(state, torch.Tensor):
        return name if state.is_floating_point() and not bool(torch.isfinite(state).all()) else None
    children = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list | tuple) else ()
    return next((found for key, child in children if (found := non_finite(child, f"{name}.{key}"))), None)


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


def evaluation_view(module: torch.nn.Module) -> Any:
    """The same module on the same parameters and buffers, in evaluation mode whatever mode the other is in."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, shared).eval()


class SoftUpdate:
    """Moves a target network towards another in place: `target += tau * (net - target)`, in one multi-tensor call."""

    def __init__(self, net: torch.nn.Module, target_net: torch.nn.Module):
        self._net: list[torch.Tensor] = list(net.parameters())
        self._target: list[torch.Tensor] = list(target_net.parameters())

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


def set_precision(precision: str, device: torch.device) -> str:
    """Chooses what products of float32 matrices are made in; `auto` is tf32 on a GPU that has it, fp32 elsewhere.

    Of bf16 the agent's part is its `autocast_dtype`; everything else stays in fp32.

    Returns:
        What was chosen: fp32, tf32 or bf16.

    Raises:
        UserError: for tf32 on a device without it.
    """
    has_tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if precision == "tf32" and not has_tf32:
        raise UserError(f"precision=tf32: {device} has no such products; choose auto, fp32 or bf16")
    chosen = ("tf32" if has_tf32 else "fp32") if precision == "auto" else precision
    torch.set_float32_matmul_precision("high" if chosen == "tf32" else "highest")
    return chosen


def keep_freed_memory() -> None:
    """Asks glibc to keep freed memory for the next allocation instead of handing it back to the kernel.

    An update at 1024 units frees and takes 50 MB; given back, each page of it faults again (5 % of the update's time).
    Where the C library is another one, nothing happens.
    """
    if platform.libc_ver()[0] == "glibc":
        trim_threshold, mmap_threshold = -1, -3  # malloc.h's names for them
        libc = ctypes.CDLL(None)
        libc.mallopt(trim_threshold, 2**30)
        libc.mallopt(mmap_threshold, 2**25)  # the most it accepts


def dotted(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested configuration as one level of dotted keys; lists stay whole."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def write_atomically(path: Path, text: str) -> None:
    """Writes a text file so that a reader, or a crash, sees either the old content or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        sync(temporary)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Returns when a file, or a folder's list of names, is on the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
