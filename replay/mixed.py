"""Batches of which a fixed share comes from data that was there before the run."""

from typing import Any

import torch

from replay_buffer import Batch
from utils import UserError


class MixedBatches:
    """What updates draw from where `preload_share` is set (RLPD's symmetric sampling is a half: arXiv 2302.02948).

    The share is of every batch, and for good: of a batch of B, round(share B) transitions are drawn from the preloaded
    ones and the others from what the run collects.

    Args:
        collected, preloaded: replay buffers.
        share: in (0, 1].
    """

    def __init__(self, collected: Any, preloaded: Any, share: float):
        self._collected = collected
        self._preloaded = preloaded
        self._share = share

    def sample(self, batch_size: int) -> Batch:
        """As ReplayBuffer.sample; the collected ones come first."""
        return _joined([buffer.sample(size) for buffer, size in self._parts(batch_size)])

    def stage(self, batch_size: int) -> None:
        """The host's part of a sample (see ReplayBuffer.stage)."""
        self._staged = self._parts(batch_size)
        for buffer, size in self._staged:
            buffer.stage(size)

    def staged(self) -> Batch:
        """The device's part."""
        return _joined([buffer.staged() for buffer, _ in self._staged])

    @property
    def generators(self) -> list[torch.Generator]:
        """Those that `staged` draws from on the device."""
        return [*self._collected.generators, *self._preloaded.generators]

    def _parts(self, batch_size: int) -> list[tuple[Any, int]]:
        preloaded = round(self._share * batch_size)
        sizes = ((self._collected, batch_size - preloaded), (self._preloaded, preloaded))
        return [(buffer, size) for buffer, size in sizes if size]


def _joined(batches: list[Any]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    if not all(isinstance(batch, Batch) for batch in batches):
        kind = type(batches[0]).__name__
        raise UserError(f"preload_share: batches of the replay buffer are {kind}, and have to be replay_buffer.Batch")
    return Batch(*(torch.cat(columns) for columns in zip(*batches, strict=True)))
