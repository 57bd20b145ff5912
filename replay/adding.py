"""Adds many rows at once to any replay buffer."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from utils import to_np


def batch_adder(buffer: Any) -> Callable[..., None]:
    """Returns a function that adds N rows to a buffer; it takes the arguments of `add`, each (N, ...).

    It is the buffer's `add_batch`. If there is none, or the class overrides `add` alone, it calls `add` row by row.
    """
    owners = [next((c for c in type(buffer).__mro__ if name in vars(c)), object) for name in ("add_batch", "add")]
    return buffer.add_batch if issubclass(*owners) and owners[0] is not object else partial(add_each, buffer)


def add_each(buffer: Any, *columns: Any) -> None:
    """Calls `buffer.add` for each of N rows."""
    arrays = [to_np(column) if isinstance(column, torch.Tensor) else column for column in columns]
    for row in zip(*(array.tolist() if array.ndim == 1 else array for array in arrays), strict=True):
        buffer.add(*row)
