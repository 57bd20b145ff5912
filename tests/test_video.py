"""Decoded videos have the right length, speed, first frame and codec."""

from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest

import video
from envs.make import make_env
from video import filming


class Counter:
    """Renders its step number as a grey level."""

    def __init__(self, size: tuple[int, int] = (64, 64)) -> None:
        self.level, self.rendered, self.size = 0, 0, size

    def render(self) -> np.ndarray:
        self.rendered += 1
        return np.full((*self.size, 3), self.level, np.uint8)


def film(path: Path, seconds_per_step: float, steps: int, size: tuple[int, int] = (64, 64)) -> tuple[Any, Any, Counter]:
    env = Counter(size)
    with filming(path, seconds_per_step) as recorder:
        for env.level in range(steps + 1):
            recorder.record(env)
    return iio.imread(path), recorder, env


def test_a_step_lasts_as_long_as_the_task_has_it_or_a_thirtieth_of_a_second() -> None:
    for name, repeat, expected in (("cheetah_run", 2, 0.02), ("Pendulum-v1", 1, 0.05), ("ProbeOneStep-v0", 2, 2 / 30)):
        assert video.seconds_per_step(make_env(name, 1), repeat) == pytest.approx(expected)


@pytest.mark.parametrize(("seconds_per_step", "steps"), [(0.01, 200), (0.05, 40), (1 / 30, 60), (0.025, 80)])
def test_two_seconds_of_any_task_last_two_seconds(tmp_path: Path, seconds_per_step: float, steps: int) -> None:
    frames, _, env = film(tmp_path / "1.mp4", seconds_per_step, steps)
    assert len(frames) == 61  # the first frame, and 30 for each second after it
    expected = np.ceil(np.arange(61) / 30 / seconds_per_step - 1e-6)
    assert np.abs(frames.mean(axis=(1, 2, 3)) - expected).max() < 4  # in order and on time, up to the codec's rounding
    assert env.rendered <= 61
    meta = iio.immeta(tmp_path / "1.mp4")
    assert meta["fps"] == 30 and meta["codec"] == "h264" and "yuv420p" in meta["pix_fmt"]


def test_odd_sizes_are_made_even(tmp_path: Path) -> None:
    assert film(tmp_path / "1.mp4", 0.1, 5, size=(33, 35))[0].shape[1:] == (32, 34, 3)


def test_an_exception_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), filming(tmp_path / "1.mp4", 0.1) as recorder:
        recorder.record(Counter())
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shape", [(32, 64, 3), (1, 64, 3), (64, 64), (64, 64, 1), None])
def test_a_film_that_fails_is_one_line_and_no_file(
    shape: tuple[int, ...] | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = Counter()
    with filming(tmp_path / "1.mp4", 0.1) as recorder:
        recorder.record(env)
        env.render = lambda: None if shape is None else np.zeros(shape, np.uint8)  # type: ignore[method-assign]
        recorder.record(env)
        recorder.record(env)
    assert list(tmp_path.iterdir()) == [] and recorder.has_failed
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1 and "cannot be filmed (" in printed
