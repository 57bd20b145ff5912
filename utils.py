"""Small helpers with no home of their own: errors, seeds, eval mode, soft updates, whole files, `Every`.

What needs torch imports it when it is called: it takes a second, and a command line is checked before.
"""

import io
import math
import os
import random
import stat
import sys
import traceback
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

FLOAT32_MAX = float(np.finfo(np.float32).max)


class UserError(Exception):
    """A mistake of the caller's: its message is one line that names the key, the value and what would be right."""


def one_line(message: BaseException | str) -> str:
    """A message, or an error's, without its line breaks."""
    return " ".join(str(message).split())


def print_error(error: Exception) -> None:
    """Prints how a command ends: one line on standard error, which begins with the command's name."""
    print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)


class RunError(Exception):
    """A fault that ends a run and loses nothing: its message is one line that says what was wrong."""


class EnvError(RunError):
    """A fault of an environment's own code, whose traceback is worth printing.

    Args:
        message: one line.
        trace: that traceback, where the code ran in another process; here it is that of the `__cause__`.
    """

    def __init__(self, message: str, trace: str = ""):
        super().__init__(message)
        self._trace = trace

    @property
    def trace(self) -> str:
        """What its code raised, as Python prints it; "" if it raised nothing."""
        here = traceback.format_exception(self.__cause__) if self.__cause__ else []
        return self._trace or "".join(here)


class PrunedError(Exception):
    """Ends a run early because other trials of its study did better.

    Args:
        step: of the evaluation after which it ends.
    """

    def __init__(self, step: int):
        super().__init__(f"pruned at step {step}")
        self.step = step


class Stopped(KeyboardInterrupt):
    """A signal ended the run after its state was saved. Like Ctrl-C, it ends a sweep too.

    Args:
        message: one line.
        exit_code: of the process.
    """

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


def set_seed_everywhere(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's (CPU and GPU) global generators."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def require_finite(what: str, values: np.ndarray) -> None:
    """Raises RunError, naming the first element that is no finite float32."""
    finite = np.abs(values) <= FLOAT32_MAX  # false for nan
    if not finite.all():
        where = np.argwhere(~finite)[0]
        raise RunError(f"{what}{where.tolist()} is {values[tuple(where)]}")


def require_finite_losses(row: dict[str, float]) -> None:
    """Raises RunError for a row of a log with a loss that is not finite."""
    for key, value in row.items():
        if key.endswith("loss") and not math.isfinite(value):
            raise RunError(f"{key} is {value}")


def leaves(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """What a nested state is made of in the end, by dotted name, in its order."""
    if isinstance(state, dict | list | tuple):
        for key, child in state.items() if isinstance(state, dict) else enumerate(state):
            yield from leaves(child, f"{name}.{key}" if name else str(key))
    else:
        yield name, state


def non_finite(state: Any, name: str) -> str | None:
    """The dotted name of the first tensor with an element that is not finite in a nested state; None if all are."""
    import torch

    for leaf_name, leaf in leaves(state, name):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
            return leaf_name
    return None


def not_plain(state: Any, name: str) -> str | None:
    """The dotted name of the first value in a nested state that is neither a tensor nor plain; None if all are."""
    import torch

    plain = (torch.Tensor, bool, int, float, str, type(None))
    return next((leaf_name for leaf_name, leaf in leaves(state, name) if type(leaf) not in plain), None)


def to_np(tensor: "torch.Tensor") -> np.ndarray:
    """A tensor's values as an array on the host, without its gradient."""
    return tensor.detach().cpu().numpy()


def eval_mode(*agents: Any) -> AbstractContextManager[None]:
    """Switches agents (anything with `.training` and `.train(bool)`) to evaluation and back."""
    return _mode(False, agents)


def train_mode(*agents: Any) -> AbstractContextManager[None]:
    """Switches agents to training and back."""
    return _mode(True, agents)


@contextmanager
def _mode(training: bool, agents: tuple[Any, ...]) -> Iterator[None]:
    before = [agent.training for agent in agents]
    for agent in agents:
        agent.train(training)
    try:
        yield
    finally:
        for agent, was_training in zip(agents, before, strict=True):
            agent.train(was_training)


class SoftUpdate:
    """Moves a target network towards another in place: `target += tau * (net - target)`, in one multi-tensor call."""

    def __init__(self, net: "torch.nn.Module", target_net: "torch.nn.Module"):
        self._net: list[torch.Tensor] = list(net.parameters())
        self._target: list[torch.Tensor] = list(target_net.parameters())

    def __call__(self, tau: float) -> None:
        import torch

        with torch.no_grad():
            torch._foreach_lerp_(self._target, self._net, tau)


def soft_update_params(net: "torch.nn.Module", target_net: "torch.nn.Module", tau: float) -> None:
    """One `SoftUpdate`, where it is not made in every step."""
    SoftUpdate(net, target_net)(tau)


def write_atomically(path: Path, text: str) -> None:
    """Writes a text file so that a reader, or a crash, sees either the old content or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
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


def refuse_links(folder: Path) -> None:
    """Looks through a folder that is going to be read or written as a run's, and may be a stranger's.

    A link in it could lead a write, or the cutting back of a log, to any file of the user's. Against somebody who puts
    one there later, while the run goes on, nothing here helps: they can write into the folder anyway.

    Raises:
        UserError: for a symbolic link, a file with a second name outside of the checkpoints (which are never written in
            place), or what is neither file nor folder. Tools that link within their own folder may do so.
    """
    for name, folders, files in os.walk(folder):
        inside = Path(name).relative_to(folder).parts
        own = any(part in LINK_THEMSELVES for part in inside)
        for path in (Path(name, entry) for entry in [*folders, *files]):
            try:
                found = path.lstat()
            except OSError:  # gone since: a checkpoint that was replaced
                continue
            if stat.S_ISLNK(found.st_mode):
                if own and path.resolve().is_relative_to(folder.resolve()):
                    continue
                raise UserError(f"{path}: a link; in a run's folder none is followed, so put the file itself there")
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
                raise UserError(f"{path}: neither a file nor a folder, which no run writes")
            if stat.S_ISREG(found.st_mode) and found.st_nlink > 1 and not own and "checkpoints" not in inside:
                raise UserError(f"{path}: a file with a second name (a hard link), which would change too; copy it")


LINK_THEMSELVES = ("wandb", ".submitit")


def open_file(path: str | Path) -> io.BufferedReader:
    """Opens a file for reading; a pipe or a device, which could keep one waiting for ever, is an OSError."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(22, "not a file", str(path))
    return os.fdopen(number, "rb")


def load_plain(path: str | Path, device: str = "cpu") -> Any:
    """A file of torch.save's: tensors and plain values, no code.

    Raises:
        Exception: of torch's, whatever it says of a file that is damaged or holds more (pickle.UnpicklingError).
    """
    import torch

    with open_file(path) as file:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as parts:
                unpacked = sum(part.file_size for part in parts.infolist())
            if unpacked > os.fstat(file.fileno()).st_size:  # torch.save does not compress
                raise ValueError("it would grow when it is unpacked")
        file.seek(0)
        return torch.load(file, map_location=device, weights_only=True)


def require_count(value: Any, what: str) -> int:
    """A counter of a saved state, which may be damaged or forged.

    Raises:
        ValueError: for anything but a whole number from 0 that numpy and torch can count with.
    """
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{what} is {one_line(repr(value))[:40]}, not a count")
    return value


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
        self.last_step = require_count(state["last_step"], "last_step")
