"""How much an agent computes: the products of an update, counted as they are made."""

from collections.abc import Sequence

from torch.utils.flop_counter import FlopCounterMode
from update_worker import ours

UPDATES = 6  # in which every delay comes round


def gflop(overrides: Sequence[str]) -> float:
    """Of an update of cheetah_run's sizes, in 1e9 additions and multiplications: the mean over all its delays."""
    from agent.networks import matmul

    asks_onednn = matmul._prefers_onednn
    matmul._prefers_onednn = lambda *product: False  # whose products are not counted
    try:
        update = ours([*overrides, "execution=eager", "device=cpu"])
        update()  # which tries one first
        with FlopCounterMode(display=False) as counter:
            for _ in range(UPDATES):
                update()
    finally:
        matmul._prefers_onednn = asks_onednn
    return counter.get_total_flops() / UPDATES / 1e9
