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


class Operations:
    """The operations that ran on the device.

    Attributes:
        calls: each operation in order, with its numbers and its results' shapes and types.
        dtypes: the types of all results.
        seeds: the seeds of the generators that were drawn from.
    """

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.dtypes: set[torch.dtype] = set()
        self.seeds: set[int] = set()


@contextmanager
def on_device(host_too: bool = False) -> Iterator[Operations]:
    """Refuses operations that a CUDA graph cannot hold: those with a host tensor, even a single number; those with
    values from Python (a copy that waits); and draws from torch's global generator.

    Args:
        host_too: for work around a graph: the host may compute with its own tensors, and send them to the device in
            copies that do not wait. Other operations on tensors of both are still refused.

    Raises:
        RefusedError: at the first such operation.
    """
    with _NoListsOrNumbers(), _Dispatch(host_too) as dispatch:
        yield dispatch.operations


class _NoListsOrNumbers(TorchFunctionMode):
    """Refuses making device tensors from Python's values, which `_Dispatch` cannot notice."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and args[0].device == META:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(part, list | np.ndarray) for part in index):
                raise RefusedError("an index of Python's or numpy's numbers is copied to the device")
        result = function(*args, **kwargs)
        if function in (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor):
            values = args[0] if function is not torch.Tensor.new_tensor else None
            if result.device == META and not isinstance(values, torch.Tensor):
                raise RefusedError(f"{function.__name__} copies Python's or numpy's numbers to the device")
        return result


class _Dispatch(TorchDispatchMode):
    def __init__(self, host_too: bool) -> None:
        super().__init__()
        self.operations = Operations()
        self._host_too = host_too

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes two seconds

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Adam's fused kernel has no version for the meta device; the check, like it, returns nothing.
        result = _check_adam(*args, **kwargs) if function in _FUSED_ADAM else function(*args, **kwargs)
        before, after = _tensors((args, kwargs)), _tensors(result)
        devices = {tensor.device.type for tensor in before + after}
        if devices - {"meta"} and not (self._host_too and _is_of_the_host(function, args, kwargs, devices)):
            raise RefusedError(f"{function} has a tensor on the {', a tensor on the '.join(sorted(devices))} device")
        if "meta" in devices:
            self._require_no_wait(function, args, kwargs)
            numbers = [value for value in tree_leaves((args, kwargs)) if isinstance(value, int | float)]
            self.operations.calls.append((str(function), numbers, [(t.shape, t.dtype) for t in after]))
            self.operations.dtypes |= {tensor.dtype for tensor in after}
        return result

    def _require_no_wait(self, function: Any, args: Any, kwargs: Any) -> None:
        if function in _ASSIGNS_BY_INDEX and any(
            i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]
        ):
            raise RefusedError(
                f"{function} by a mask, whose elements a GPU counts for the host; torch.where needs no count"
            )
        if torch.Tag.nondeterministic_seeded in function.tags:
            generator = kwargs.get("generator")
            if generator is None:
                raise RefusedError(f"{function} draws from torch's global generator")
            self.operations.seeds.add(generator.initial_seed())


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def _is_of_the_host(function: Any, args: Any, kwargs: Any, devices: set[str]) -> bool:
    """Returns whether an operation has only host tensors, or is a copy that does not wait."""
    if "meta" not in devices:
        return True
    waits = not (kwargs.get("non_blocking") or (len(args) > 2 and args[2]))
    return function in _COPIES and not waits


def _check_adam(*lists: Any, lr: torch.Tensor, **numbers: Any) -> None:
    """Asserts what the fused kernel takes for granted: it follows memory and looks at no shapes."""
    *by_parameter, _, steps = lists
    for parameter, *others in zip(*by_parameter, strict=True):
        for tensor in others:
            assert _order(tensor) == _order(parameter) and tensor.dtype == parameter.dtype == torch.float32
    assert all(number.shape == () and number.dtype == torch.float32 for number in (*steps, lr))


def _order(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Returns sizes and strides; the stride of a dimension of one element does not matter."""
    return [(size, 0 if size == 1 else stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]


class HostGenerator(torch.Generator):
    """A CPU generator in place of one on the meta device: torch has none there, and accepts the CPU's."""

    def __new__(cls, device: Any = "cpu") -> "HostGenerator":
        return super().__new__(cls, "cpu" if torch.device(device) == META else device)

    def __init__(self, device: Any = "cpu") -> None:
        """`__new__` has already used the device."""


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the meta device what it lacks of a GPU: generators, and the state of autocast.

    Python code sees whether autocast is on, and its type; the casts that torch itself would make are left out.
    """
    monkeypatch.setattr(torch, "Generator", HostGenerator)
    states: list[tuple[bool, torch.dtype]] = [(False, torch.bfloat16)]  # whether it is on, and its type

    @contextmanager
    def autocast(device: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> Iterator[None]:
        states.append((enabled, dtype or states[-1][1]))
        try:
            yield
        finally:
            states.pop()

    def on_meta(name: str, replacement: Any) -> None:
        original = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda of, *a, **k: (replacement if of == "meta" else original)(of, *a, **k))

    on_meta("autocast", autocast)
    on_meta("is_autocast_enabled", lambda device: states[-1][0])
    on_meta("get_autocast_dtype", lambda device: states[-1][1])
