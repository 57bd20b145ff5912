"""Batches with a fixed share of preloaded transitions."""

from typing import Any

import torch

from replay_buffer import Batch


class MixedBatches:
    """Draws round(share B) transitions of each batch from preloaded data and the others from what the run collects.

    Its methods are a ReplayBuffer's. Updates draw from it if `preload_share` is set; a share of 0.5 is RLPD's symmetric
    sampling (arXiv 2302.02948).
    """

    def __init__(self, collected: Any, preloaded: Any, share: float):
        self._collected, self._preloaded, self._share = collected, preloaded, share
        self.generators = [g for buffer in (collected, preloaded) for g in getattr(buffer, "generators", ())]

    def sample(self, batch_size: int) -> Batch:
        """Draws a batch, collected transitions first (see ReplayBuffer.sample)."""
        return _join([buffer.sample(size) for buffer, size in self._split(batch_size)])

    def stage(self, batch_size: int) -> None:
        self._staged = self._split(batch_size)
        for buffer, size in self._staged:
            buffer.stage(size)

    def staged(self) -> Batch:
        return _join([buffer.staged() for buffer, _ in self._staged])

    def _split(self, batch_size: int) -> list[tuple[Any, int]]:
        preloaded = round(self._share * batch_size)
        sizes = ((self._collected, batch_size - preloaded), (self._preloaded, preloaded))
        return [(buffer, size) for buffer, size in sizes if size]


def _join(batches: list[Batch]) -> Batch:
    return batches[0] if len(batches) == 1 else Batch(*map(torch.cat, zip(*batches, strict=True)))
