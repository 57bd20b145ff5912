"""Checks a GPU's rules on a machine without one, by torch's meta device, whose tensors have shapes but no numbers.

Asking one of them for a number (`item`, `bool`, `float`, `cpu`, `numpy`, a mask as an index) raises; a GPU would make
the host wait. `on_device` refuses what the meta device allows but a GPU would wait for, or a CUDA graph cannot hold.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

META = torch.device("meta")
_aten = torch.ops.aten
_COPIES = (_aten.copy_.default, _aten._to_copy.default)
_ASSIGNS_BY_INDEX = (_aten.index_put_.default, _aten.index_put.default, _aten._index_put_impl_.default)
_FUSED_ADAM = (_aten._fused_adam_.tensor_lr, _aten._fused_adamw_.tensor_lr)


class RefusedError(Exception):
    """A GPU would wait for the operation, or a CUDA graph cannot hold it; the message names it."""


class Operations(TorchDispatchMode):
    """Refuses operations, and notes those that ran on the device.

    Attributes:
        calls: each operation in order, with its numbers and its results' shapes and types.
        seeds: the seeds of the generators that were drawn from.
    """

    def __init__(self, host_too: bool) -> None:
        super().__init__()
        self.calls: list[Any] = []
        self.seeds: set[int] = set()
        self._host_too = host_too

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes two seconds

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = None if function in _FUSED_ADAM else function(*args, **kwargs)  # which the meta device lacks
        before, after = tensors_in((args, kwargs)), tensors_in(result)
        devices = {tensor.device.type for tensor in before + after}
        is_sent = function in _COPIES and (kwargs.get("non_blocking") or args[2:3] == (True,))
        if devices - {"meta"} and not (self._host_too and ("meta" not in devices or is_sent)):
            raise RefusedError(f"{function} has tensors on the devices {sorted(devices)}")
        if "meta" in devices:
            self._require_no_wait(function, args, kwargs)
            numbers = [value for value in tree_leaves((args, kwargs)) if isinstance(value, int | float)]
            self.calls.append((str(function), numbers, [(t.shape, t.dtype) for t in after]))
        return result

    def _require_no_wait(self, function: Any, args: Any, kwargs: Any) -> None:
        if function in _ASSIGNS_BY_INDEX and any(i.dtype in (torch.bool, torch.uint8) for i in tensors_in(args[1])):
            raise RefusedError(f"{function} by a mask, whose elements a GPU counts for the host; use torch.where")
        if torch.Tag.nondeterministic_seeded in function.tags:
            if kwargs.get("generator") is None:
                raise RefusedError(f"{function} draws from torch's global generator")
            self.seeds.add(kwargs["generator"].initial_seed())


class _NoListsOrNumbers(TorchFunctionMode):
    """Refuses making device tensors from Python's values, which `Operations` cannot notice."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and args[0].device == META:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(part, list | np.ndarray) for part in index):
                raise RefusedError("an index of Python's or numpy's numbers is copied to the device")
        result = function(*args, **(kwargs or {}))
        copies_numbers = function in (torch.tensor, torch.as_tensor, torch.asarray)
        copies_numbers &= not (args and isinstance(args[0], torch.Tensor))
        if (copies_numbers or function is torch.Tensor.new_tensor) and result.device == META:
            raise RefusedError(f"{function.__name__} copies Python's or numpy's numbers to the device")
        return result


@contextmanager
def on_device(host_too: bool = False) -> Iterator[Operations]:
    """Raises RefusedError at a host tensor, even of one number, a value from Python, and a draw without a generator.

    Args:
        host_too: for work around a graph: the host may compute with its own tensors, and send them to the device in
            copies that do not wait. Other operations on tensors of both are still refused.
    """
    with _NoListsOrNumbers(), Operations(host_too) as operations:
        yield operations


def tensors_in(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


class HostGenerator(torch.Generator):
    """A CPU generator in place of one on the meta device: torch has none there, and accepts the CPU's."""

    def __new__(cls, device: Any = "cpu") -> "HostGenerator":
        return super().__new__(cls, "cpu" if torch.device(device) == META else device)

    def __init__(self, device: Any = "cpu") -> None:
        """`__new__` has already used the device."""


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the meta device what it lacks of a GPU: generators."""
    monkeypatch.setattr(torch, "Generator", HostGenerator)
