"""Updates are due at the right steps, also after a restart."""

import numpy as np
import pytest
from composed import settings

from run.progress import Progress


def updates(num_envs: int, every: int, per_step: float, transitions: int) -> list[int]:
    overrides = (f"num_envs={num_envs}", f"update_every={every}", f"updates_per_step={per_step}")
    progress = Progress(settings(*overrides), 1)
    return [progress.take_updates(added) for added in range(num_envs, transitions + 1, num_envs)]


@pytest.mark.parametrize(
    ("num_envs", "every", "per_step", "expected"),
    [
        (1, 1, 1, [1] * 12),
        (1, 1, 2, [2] * 12),
        (1, 4, 1, [0, 0, 0, 4] * 3),
        (1, 1, 0.25, [0, 0, 0, 1] * 3),
        (1, 3, 0.5, [0, 0, 1, 0, 0, 2, 0, 0, 1, 0, 0, 2]),
        (4, 1, 1, [4] * 3),
        (4, 6, 0.5, [0, 3, 3]),  # a burst after 8 and after 12 transitions
    ],
)
def test_updates_come_in_bursts_and_fractions_add_up(
    num_envs: int, every: int, per_step: float, expected: list[int]
) -> None:
    assert updates(num_envs, every, per_step, 12) == expected


def test_a_fraction_is_not_lost_to_rounding() -> None:
    assert sum(updates(1, 1, 0.1, 1000)) == 100


def test_steps_per_second_are_of_all_environments_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 14.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    progress = Progress(settings("num_envs=2"), 1)
    progress.begin_episodes(np.ones(2, bool))
    progress.count(np.ones(2), np.array([8, 8]))
    assert progress.end_episodes(np.array([0]))["steps_per_second"] == 4.0  # 16 steps in 4 seconds


def test_an_evaluation_is_no_part_of_an_episodes_duration() -> None:
    progress = Progress(settings(), 1)
    progress.begin_episodes(np.ones(1, bool))
    progress.count(np.ones(1), np.ones(1, int))
    progress.exclude_time(-1000.0)  # as if the episode had begun 1000 s earlier
    assert progress.end_episodes(np.array([0]))["duration"] > 999
    assert not len(progress.unfinished())
