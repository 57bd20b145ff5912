"""Finds columns (B,) and (B, 1) that were combined into a matrix (B, B), which torch does without a word."""

import sys
from typing import Any

import torch

from agent.toolkit.dispatch import DispatchMode
from utils import UserError


class NoBroadcasts(DispatchMode):
    """In its block, no operation combines floats (count,) and (..., count, 1) into (..., count, count).

    Args:
        count: the batch size.
        name: what the block runs, for the error.

    Raises:
        UserError: from such an operation, with the line that asked for it.
    """

    def __init__(self, count: int, name: str):
        super().__init__()
        self._count, self._name = count, name

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, count = function(*args, **(kwargs or {})), self._count
        if count == 1 or not isinstance(result, torch.Tensor) or result.shape[-2:] != (count, count):
            return result
        if not result.is_floating_point():  # indices, such as of an image's pixels
            return result
        shapes = [tuple(value.shape) for value in args if isinstance(value, torch.Tensor)]
        is_meant = any(shape[-2:] in ((1, count), (count, count)) for shape in shapes)  # also a matrix product's
        column = next((shape for shape in shapes if shape[-2:] == (count, 1)), None)
        if (count,) in shapes and column and not is_meant:
            raise UserError(
                f"{self._name} combines shapes ({count},) and {column} into {tuple(result.shape)}, {_line()}; give "
                "both the same shape, or index one with [None] if this is meant"
            )
        return result


def _line() -> str:
    """Returns the file and the line that called torch."""
    frame = sys._getframe(2)
    while frame.f_back and "torch" in frame.f_globals.get("__name__", "").split(".")[0]:
        frame = frame.f_back
    return f"in {frame.f_code.co_filename}, line {frame.f_lineno}"
