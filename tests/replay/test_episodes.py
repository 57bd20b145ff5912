"""Episodes are rebuilt from the rows of an older run."""

import pytest
import torch

from replay.episodes import split_episodes
from replay_buffer import Batch

CUT_SHORT = [(0, 1, False), (1, 2, False), (0, 1, False), (1, 2, False), (2, 3, True)]
ALTERNATING = [(0, 1, False), (5, 6, False), (1, 2, True), (6, 7, False), (0, 1, False), (7, 8, True)]


@pytest.mark.parametrize(
    ("steps", "num_envs", "expected"),
    [
        # Both go from 0 to 2; the first is truncated there, and the second goes on.
        (CUT_SHORT, 1, [([0.0, 1.0], False), ([2.0, 3.0, 4.0], True)]),
        (ALTERNATING, 2, [([0.0, 2.0], True), ([1.0, 3.0, 5.0], True), ([4.0], False)]),
    ],
)
def test_episodes_are_rebuilt(steps: list[tuple[int, int, bool]], num_envs: int, expected: list) -> None:
    """Steps are (place before, place after, whether it terminated); rewards count them."""
    before, after, terminated = (torch.tensor(column)[:, None].float() for column in zip(*steps, strict=True))
    rows = Batch(before, 0 * before, torch.arange(len(steps))[:, None].float(), after, 1 - terminated)
    rebuilt = [(episode.rewards.tolist(), episode.terminated) for episode in split_episodes(rows, num_envs)]
    assert rebuilt == expected
