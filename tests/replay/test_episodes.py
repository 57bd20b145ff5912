"""Episodes are rebuilt from the rows of an older run."""

from typing import Any

import numpy as np

from replay.episodes import chains


def rows(*steps: tuple[int, int, bool]) -> dict[str, np.ndarray]:
    """Returns columns of transitions, each (place before, place after, whether it terminated); rewards count them."""
    count = len(steps)
    before, after, terminated = (np.array(column, np.float32) for column in zip(*steps, strict=True))
    return {
        "obs": before[:, None],
        "next_obs": after[:, None],
        "actions": np.zeros((count, 1), np.float32),
        "rewards": np.arange(count, dtype=float),
        "discounts": 1 - terminated,
    }


def rebuilt(columns: dict[str, Any], num_envs: int) -> list[tuple[list[float], bool]]:
    return [(episode.rewards.tolist(), episode.terminated) for episode in chains(columns, num_envs)]


def test_an_episode_that_was_cut_short_takes_no_step_of_a_later_one() -> None:
    """Both go from 0 to 2; the first is truncated there, and the second goes on."""
    columns = rows((0, 1, False), (1, 2, False), (0, 1, False), (1, 2, False), (2, 3, True))
    assert rebuilt(columns, 1) == [([0.0, 1.0], False), ([2.0, 3.0, 4.0], True)]


def test_environments_alternate() -> None:
    columns = rows((0, 1, False), (5, 6, False), (1, 2, True), (6, 7, False), (0, 1, False), (7, 8, True))
    assert rebuilt(columns, 2) == [([0.0, 2.0], True), ([1.0, 3.0, 5.0], True), ([4.0], False)]
