"""Decoded videos have the right length, speed, first frame and codec."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest

import video
from envs.make import make_env
from video import VideoRecorder, filming


class Counter:
    """Renders its step number as a grey level."""

    def __init__(self, size: tuple[int, int] = (64, 64)) -> None:
        self.level, self.rendered, self.size = 0, 0, size

    def render(self) -> np.ndarray:
        self.rendered += 1
        return np.full((*self.size, 3), self.level, np.uint8)


def film(
    path: Path, seconds_per_step: float, steps: int, size: tuple[int, int] = (64, 64)
) -> tuple[np.ndarray, Counter]:
    env = Counter(size)
    with filming(path, seconds_per_step) as recorder:
        recorder.record(env)
        for step in range(1, steps + 1):
            env.level = step
            recorder.record(env)
    return iio.imread(path), env


@pytest.mark.parametrize("metadata", [{}, {"render_fps": None}, {"render_fps": 30}])
def test_an_environment_without_a_rate_is_shown_at_thirty_steps_per_second(metadata: dict[str, Any]) -> None:
    env = SimpleNamespace(unwrapped=SimpleNamespace(), metadata=metadata)
    assert video.seconds_per_step(env, 2) == pytest.approx(2 / 30)


@pytest.mark.parametrize(("seconds_per_step", "steps"), [(0.01, 200), (0.05, 40), (1 / 30, 60), (0.025, 80)])
def test_two_seconds_of_any_task_last_two_seconds(tmp_path: Path, seconds_per_step: float, steps: int) -> None:
    frames, env = film(tmp_path / "1.mp4", seconds_per_step, steps)
    assert len(frames) == 61  # the first frame, and 30 for each second after it
    levels = frames.mean(axis=(1, 2, 3))
    expected = np.ceil(np.arange(61) / 30 / seconds_per_step - 1e-6)
    assert np.abs(levels - expected).max() < 4  # frames come in order and on time, up to the codec's rounding
    assert env.rendered <= 61
    meta = iio.immeta(tmp_path / "1.mp4")
    assert meta["fps"] == 30 and meta["codec"] == "h264" and "yuv420p" in meta["pix_fmt"]


def test_odd_sizes_are_made_even(tmp_path: Path) -> None:
    assert film(tmp_path / "1.mp4", 0.1, 5, size=(33, 35))[0].shape[1:] == (32, 34, 3)


def test_a_video_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), filming(tmp_path / "1.mp4", 0.1) as recorder:
        recorder.record(Counter())
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_video_is_written_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    for name in ("1.mp4", ".1.part.mp4"):
        (tmp_path / name).symlink_to(tmp_path / "mine")
    assert len(film(tmp_path / "1.mp4", 0.1, 5)[0]) > 5 and not (tmp_path / "1.mp4").is_symlink()
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.mark.parametrize("size", [(32, 64), (64, 66), (1, 64), (0, 64)])
def test_frames_that_change_their_size_are_a_line_and_no_video(
    size: tuple[int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = Counter()
    with filming(tmp_path / "1.mp4", 0.1) as recorder:
        recorder.record(env)
        env.size = size
        recorder.record(env)
        recorder.record(env)
    assert list(tmp_path.iterdir()) == [] and not recorder.renders and recorder.preview()[0] is None
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and said.startswith("No videos: this environment cannot be filmed (")


@pytest.mark.parametrize("channels", [0, 5])
def test_frames_that_are_no_pictures(channels: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Layers(Counter):
        def render(self) -> np.ndarray:
            return np.zeros((64, 64, channels), np.uint8)

    with filming(tmp_path / "1.mp4", 0.1) as recorder:
        recorder.record(Layers())
    assert list(tmp_path.iterdir()) == []
    assert f"render gave uint8 of shape (64, 64, {channels}), and no picture" in capsys.readouterr().out


@pytest.mark.parametrize(("steps", "fps"), [(40, 10), (200, 2.5)])
def test_a_preview_is_the_video_made_small(tmp_path: Path, steps: int, fps: float) -> None:
    env = Counter((400, 200))
    with filming(tmp_path / "1.mp4", 0.1) as recorder:
        recorder.record(env)
        for env.level in range(1, steps + 1):
            recorder.record(env)
    frames, frames_per_second = recorder.preview()
    assert frames is not None and frames.shape[1:] == (134, 67, 3) and frames.dtype == np.uint8
    assert frames_per_second == fps
    assert frames[:, 0, 0, 0].tolist() == list(range(0, steps + 1, int(10 / fps)))


def test_a_video_that_failed_has_no_preview(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    recorder = VideoRecorder(tmp_path / "file/1.mp4", 0.1)
    recorder.record(Counter())
    assert recorder.preview()[0] is None


def test_a_rendered_task_is_a_picture_that_moves(opengl: None, tmp_path: Path) -> None:
    env = make_env("cheetah_run", seed=1, render=True)
    env.reset(seed=1)
    with filming(tmp_path / "1.mp4", 0.01) as recorder:
        recorder.record(env)
        for _ in range(30):
            env.step(np.ones(6, np.float32))
            recorder.record(env)
    frames = iio.imread(tmp_path / "1.mp4").astype(float)
    assert frames.shape == (10, 256, 256, 3)
    assert frames.std(axis=(1, 2, 3)).min() > 10
    assert np.abs(frames[-1] - frames[0]).mean() > 1


def test_an_unstarted_recorder_saves_nothing(tmp_path: Path) -> None:
    VideoRecorder(tmp_path / "1.mp4", 0.1).save()
    assert list(tmp_path.iterdir()) == []


def test_a_step_lasts_as_long_as_the_task_says() -> None:
    assert video.seconds_per_step(make_env("cheetah_run", 1), 2) == pytest.approx(0.02)
    assert video.seconds_per_step(make_env("Pendulum-v1", 1), 1) == pytest.approx(0.05)
