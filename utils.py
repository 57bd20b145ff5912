"""Helpers that the whole project shares: errors, files, nested states, seeds, eval mode, soft updates."""

import argparse
import fcntl
import hashlib
import math
import os
import random
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:  # functions import torch late, as command lines are checked before it is imported
    import torch

FLOAT32_MAX = float(np.finfo(np.float32).max)


class UserError(Exception):
    """A mistake of the user. The message is one line that names the key, the value and what would be right."""


class RunError(Exception):
    """A fault that ends a run without losing saved data. The message is one line."""


def one_line(message: BaseException | str) -> str:
    return " ".join(str(message).split())


class OneLineParser(argparse.ArgumentParser):
    """Ends a command in one line: with exit code 2 after a mistake of the user, 3 after a fault."""

    def error(self, message: str | Exception) -> NoReturn:
        self.exit(3 if isinstance(message, RunError) else 2, f"{self.prog}: {one_line(message)}\n")


def command_line(script: str, *arguments: str) -> str:
    """Returns a shell command that runs one of this project's scripts, from whatever folder is the current one."""
    path = Path(__file__).resolve().with_name(script)
    return shlex.join(["python", script if path.parent == Path.cwd() else str(path), *arguments])


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
    """Writes a file that is whole or not there."""
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
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lock(path: Path) -> int:
    """Locks a file until the returned descriptor is closed; raises BlockingIOError if another process has locked it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError as error:  # a file system without locks
        print(f"{path}: nothing keeps a second process out ({error.strerror})")
    return descriptor


def set_seed_everywhere(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's (CPU and GPU) global generators."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def restore_generator(generator: Any, state: Any) -> None:
    """Restores a torch.Generator; on another kind of device its numbers begin anew, seeded by the state."""
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
        raise RunError(f"{what}{np.argwhere(~finite)[0].tolist()} is {values[~finite][0]}")


def require_finite_losses(row: dict[str, float]) -> None:
    """Raises RunError if a loss in a row of the log is not finite."""
    for key, value in row.items():
        if key.endswith("loss") and not math.isfinite(value):
            raise RunError(f"{key} is {value}")


def leaves(state: Any, name: str = "", nested: Any = (dict, list, tuple)) -> Iterator[tuple[str, Any]]:
    """Yields the leaves of nested dictionaries, lists and tuples with their dotted names."""
    if isinstance(state, nested):
        for key, child in state.items() if isinstance(state, dict) else enumerate(state):
            yield from leaves(child, f"{name}.{key}" if name else str(key), nested)
    else:
        yield name, state


def dotted(config: Any) -> dict[str, Any]:
    """Flattens a nested configuration to one level of dotted keys. A list is a value."""
    return dict(leaves(config, nested=dict))


def non_finite(state: Any, name: str) -> str | None:
    """Returns the dotted name of the first tensor in a nested state that is not finite; None if all are."""
    import torch

    floats = ((n, v) for n, v in leaves(state, name) if isinstance(v, torch.Tensor) and v.is_floating_point())
    return next((leaf_name for leaf_name, value in floats if not torch.isfinite(value).all()), None)


def to_np(tensor: "torch.Tensor") -> np.ndarray:
    return tensor.detach().cpu().numpy()


@contextmanager
def eval_mode(*agents: Any) -> Iterator[None]:
    """Switches agents (any object with `.training` and `.train(bool)`) to evaluation and back."""
    before = [(agent, agent.training) for agent in agents]
    for agent in agents:
        agent.train(False)
    try:
        yield
    finally:
        for agent, was_training in before:
            agent.train(was_training)


class SoftUpdate:
    """Moves a target network towards a network in place, `target += tau * (net - target)`, in one multi-tensor call."""

    def __init__(self, net: "torch.nn.Module", target_net: "torch.nn.Module"):
        self._net, self._target = tuple(net.parameters()), tuple(target_net.parameters())

    def __call__(self, tau: float) -> None:
        import torch

        with torch.no_grad():
            torch._foreach_lerp_(self._target, self._net, tau)


def soft_update_params(net: "torch.nn.Module", target_net: "torch.nn.Module", tau: float) -> None:
    """Makes one soft update; for repeated updates, a `SoftUpdate` is faster."""
    SoftUpdate(net, target_net)(tau)
