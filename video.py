"""Writes rendered episodes as mp4 files. Browsers play them at the task's real speed."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import imageio
import numpy as np

FPS = 30


def seconds_per_step(env: Any, action_repeat: int) -> float:
    """Returns the simulated (or displayed) time of one `env.step`, in seconds."""
    dt = getattr(env.unwrapped, "dt", None) or 1.0 / (env.metadata.get("render_fps") or FPS)
    return float(dt) * action_repeat


class VideoRecorder:
    """Writes one episode at 30 frames per simulated second.

    A frame is rendered only if the video needs it; a task with fewer than 30 steps per second repeats frames.

    Args:
        path: the mp4 (H.264), which appears when it is complete; None records nothing.
        seconds_per_step: simulated time between two calls of `record`.
    """

    def __init__(self, path: Path | None, seconds_per_step: float):
        self._path, self._seconds_per_step = path, seconds_per_step
        self._partial: Any = path and path.with_name(f".{path.stem}.part.mp4")
        self._steps = self._frames = 0
        self._writer: Any = None
        self.has_failed = False  # to render or write a frame; then a line was printed, and there is no video

    def record(self, env: Any) -> None:
        """Adds the current frame; call it after the reset and after each step."""
        num_frames = int(self._steps * self._seconds_per_step * FPS + 1e-6) + 1 - self._frames
        self._steps += 1
        if self._path is None or self.has_failed or num_frames <= 0:
            return
        try:
            frame = np.asarray(env.render())[..., :3]  # (H, W, 3), uint8
            frame = frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]  # H.264 needs even sizes
            if self._writer is None:
                self._path.parent.mkdir(exist_ok=True)  # without parents: a deleted run folder stays deleted
                options: dict[str, Any] = {"codec": "libx264", "pixelformat": "yuv420p", "ffmpeg_log_level": "error"}
                self._writer = imageio.get_writer(self._partial, fps=FPS, macro_block_size=2, **options)
            for _ in range(num_frames):
                self._writer.append_data(frame)
            self._frames += num_frames
        except Exception as error:  # of the environment, of ffmpeg, or a full disk
            self._fail(error)

    def save(self) -> None:
        """Completes the file and moves it to its path."""
        try:
            if self._path is not None and self._writer is not None:
                self._writer.close()
                self._partial.replace(self._path)
                self._writer = None
        except OSError as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.has_failed = True
        self.discard()
        print(f"No {self._path}, as it cannot be filmed ({type(error).__name__}: {error})", flush=True)

    def discard(self) -> None:
        """Deletes the incomplete file."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            self._partial.unlink(missing_ok=True)
            self._writer = None


@contextmanager
def filming(path: Path | None, seconds_per_step: float) -> Iterator[VideoRecorder]:
    """Yields a recorder whose video is saved, or deleted if an exception is raised."""
    recorder = VideoRecorder(path, seconds_per_step)
    try:
        yield recorder
        recorder.save()
    finally:
        recorder.discard()
