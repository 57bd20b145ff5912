"""Counts the floating-point operations in one update of an agent."""

from collections.abc import Sequence

from torch.utils.flop_counter import FlopCounterMode
from update_worker import ours

UPDATES = 60  # a multiple of every update frequency


def gflop(overrides: Sequence[str]) -> float:
    """Returns the mean cost of an update at cheetah_run's sizes, in 1e9 additions and multiplications."""
    from agent.networks import matmul

    asks_onednn = matmul._prefers_onednn
    matmul._prefers_onednn = lambda *shapes: False  # torch's counter misses oneDNN's matmuls
    try:
        update = ours([*overrides, "execution=eager", "device=cpu"])
        update()  # the first update includes a rehearsal, which does not count
        with FlopCounterMode(display=False) as counter:
            for _ in range(UPDATES):
                update()
    finally:
        matmul._prefers_onednn = asks_onednn
    return counter.get_total_flops() / UPDATES / 1e9
