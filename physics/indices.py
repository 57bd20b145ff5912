"""Indices, sent to a device once."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Indices(TorchFunctionMode):
    """A context in which tensors are indexed by lists and tuples that were sent to the device once.

    Torch would otherwise send each list again in every step, and wait for the copy.
    """

    def __init__(self, device: torch.device):
        super().__init__()
        self._device = device
        self._sent: dict[tuple[int, ...], torch.Tensor] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.__getitem__ and isinstance(args[1], tuple):
            args = args[0], tuple(self._of(part) if isinstance(part, list | tuple) else part for part in args[1])
        return function(*args, **(kwargs or {}))

    def _of(self, places: list[int] | tuple[int, ...]) -> torch.Tensor:
        key = tuple(places)
        if key not in self._sent:
            self._sent[key] = torch.tensor(key, device=self._device)
        return self._sent[key]
