"""How much memory the networks of an agent may take: counted while they are built, before it is taken."""

import math
from typing import Any

import torch

from agent.toolkit.dispatch import DispatchMode
from settings.operating_system import available_bytes
from utils import UserError

FLOAT_BYTES = 4
COPIES = 4  # of a weight: the weight, its gradient and Adam's two averages


class WeightLimit(DispatchMode):
    """Within its block, a new tensor that would bring the total above `most` elements raises UserError instead.

    The error's message ends with that total.
    """

    def __init__(self, most: int, message: str):
        super().__init__()
        self._most = most
        self._message = message
        self._count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if args and isinstance(args[0], list | tuple) and all(type(size) is int for size in args[0]):  # empty(sizes)
            self._count += math.prod(args[0])
            if self._count > self._most:
                raise UserError(f"{self._message} (at least {self._count:,})")
        return operation(*args, **(kwargs or {}))


def limit_by_memory(device: torch.device) -> WeightLimit:
    """Returns the limit for networks that will be trained on a device."""
    on_gpu = device.type == "cuda"
    available = torch.cuda.get_device_properties(device).total_memory if on_gpu else available_bytes()
    message = f"agent: its networks and their optimizers need more than the {available:,} bytes that are available"
    return WeightLimit(available // (FLOAT_BYTES * COPIES), f"{message}; these are too many weights")


def limit_by_file(file_bytes: int, name: str) -> WeightLimit:
    """Returns the limit for networks read from a file, in which a weight takes at least two bytes (bfloat16)."""
    return WeightLimit(file_bytes // 2, f"{name}: its agent would have more weights than are saved there")
