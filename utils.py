"""Helpers that the whole project shares: errors, nested states, seeds, eval mode, soft updates, `Every`.

Functions that need torch import it when they are called, because command lines are checked before torch is imported.
"""

import argparse
import errno
import hashlib
import math
import os
import random
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:
    import torch

FLOAT32_MAX = float(np.finfo(np.float32).max)


class UserError(Exception):
    """A mistake of the user. The message is one line that names the key, the value and what would be right."""


def one_line(message: BaseException | str) -> str:
    """Removes the line breaks of a message or of an error's message."""
    return " ".join(str(message).split())


def print_error(error: Exception, command: str = "") -> int:
    """Prints how a command ends: one line on standard error, which begins with the command's name.

    Returns:
        The exit code: 2 for a mistake of the user, 3 for a fault.
    """
    message = one_line(error) if isinstance(error, UserError) else error
    lines = [f"{command or Path(sys.argv[0]).name}: {message}", *getattr(error, "__notes__", ())]
    print("\n".join(lines), file=sys.stderr)
    return 2 if isinstance(error, UserError) else 3


class OneLineParser(argparse.ArgumentParser):
    """Reports a mistake in one line, without the usage, and exits with code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def command_line(script: str, *arguments: str) -> str:
    """Returns a shell command that runs one of this project's scripts, from whatever folder is the current one."""
    path = Path(__file__).resolve().with_name(script)
    return shlex.join(["python", script if path.parent == Path.cwd() else str(path), *arguments])


class RunError(Exception):
    """A fault that ends a run without losing saved data. The message is one line."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a path to write to; when the block ends, that file is on the disk and replaces the one at `path`.

    If the block raises, the older file stays. A killed process may leave `.<name>.part`, which the next write replaces.
    """
    partial = path.with_name(f".{path.name}.part{path.suffix}")
    try:
        yield partial
        sync(partial)
        partial.replace(path)
        sync(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, data: bytes | str) -> None:
    """Writes a file that is whole or not there; a text in UTF-8."""
    with replacing(path) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)


def sync(path: Path) -> None:
    """Flushes a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Returns a file's SHA-256, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lock(path: Path) -> int:
    """Locks a file, which is created if need be, until its descriptor is closed or the process ends.

    Returns:
        The descriptor.

    Raises:
        BlockingIOError: if another process holds the lock.
    """
    import fcntl  # not on Windows

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError as error:  # a file system without locks
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        print(f"{path}: nothing keeps a second process out ({error.strerror})")
    return descriptor


def unwrapped(factory: Any) -> tuple[Any, dict[str, Any]]:
    """Returns what nested functools.partial call in the end, and their keywords; the outermost counts."""
    keywords: dict[str, Any] = {}
    while isinstance(factory, partial):
        factory, keywords = factory.func, {**factory.keywords, **keywords}
    return factory, keywords


def set_seed_everywhere(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's (CPU and GPU) global generators."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def restore_generator(generator: Any, state: Any) -> None:
    """Restores a torch.Generator. Another kind of device cannot continue its numbers: there they begin anew, seeded by
    the state."""
    state = state.cpu()
    if state.shape == generator.get_state().shape:
        generator.set_state(state)
    else:
        generator.manual_seed(int(np.random.SeedSequence(state.tolist()).generate_state(1)[0]))


def require_finite(what: str, values: Any) -> None:
    """Raises RunError for an element that is not a finite float32, with its index."""
    if getattr(values, "is_cuda", False):  # from a simulator, which has checked them (envs/simulator.py)
        return
    values = np.asarray(values)
    finite = np.abs(values) <= FLOAT32_MAX  # false for nan
    if not finite.all():
        where = np.argwhere(~finite)[0]
        raise RunError(f"{what}{where.tolist()} is {values[tuple(where)]}")


def require_finite_losses(row: dict[str, float]) -> None:
    """Raises RunError if a loss in a row of the log is not finite."""
    for key, value in row.items():
        if key.endswith("loss") and not math.isfinite(value):
            raise RunError(f"{key} is {value}")


def leaves(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the leaves of nested dictionaries, lists and tuples with their dotted names, in order."""
    if isinstance(state, dict | list | tuple):
        for key, child in state.items() if isinstance(state, dict) else enumerate(state):
            yield from leaves(child, f"{name}.{key}" if name else str(key))
    else:
        yield name, state


def non_finite(state: Any, name: str) -> str | None:
    """Returns the dotted name of the first tensor in a nested state that is not finite; None if all are."""
    import torch

    for leaf_name, leaf in leaves(state, name):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
            return leaf_name
    return None


def not_plain(state: Any, name: str) -> str | None:
    """Returns the dotted name of the first leaf that is neither a tensor nor a plain value; None if there is none."""
    import torch

    plain = (torch.Tensor, torch.nn.Parameter, bool, int, float, str, type(None))
    return next((leaf_name for leaf_name, leaf in leaves(state, name) if type(leaf) not in plain), None)


def to_np(tensor: "torch.Tensor") -> np.ndarray:
    """Copies a tensor to a NumPy array on the host."""
    return tensor.detach().cpu().numpy()


@contextmanager
def eval_mode(*agents: Any) -> Iterator[None]:
    """Switches agents (any object with `.training` and `.train(bool)`) to evaluation and back."""
    before = [agent.training for agent in agents]
    for agent in agents:
        agent.train(False)
    try:
        yield
    finally:
        for agent, was_training in zip(agents, before, strict=True):
            agent.train(was_training)


class SoftUpdate:
    """Moves a target network towards a network in place, `target += tau * (net - target)`, in one multi-tensor call."""

    def __init__(self, net: "torch.nn.Module", target_net: "torch.nn.Module"):
        self._net: list[torch.Tensor] = list(net.parameters())
        self._target: list[torch.Tensor] = list(target_net.parameters())

    def __call__(self, tau: float) -> None:
        import torch

        with torch.no_grad():
            torch._foreach_lerp_(self._target, self._net, tau)


def soft_update_params(net: "torch.nn.Module", target_net: "torch.nn.Module", tau: float) -> None:
    """Makes one soft update; for repeated updates, a `SoftUpdate` is faster."""
    SoftUpdate(net, target_net)(tau)


class Every:
    """Returns whether a multiple of `frequency` was crossed since the last call; never for a frequency of 0 or less."""

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
