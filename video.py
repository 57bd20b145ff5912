"""Writes rendered episodes as mp4 files. Browsers play them at the task's real speed."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import imageio
import numpy as np
from PIL import Image

from files.writing import NewFile

FPS = 30
CHANNELS = (1, 2, 3, 4)  # of a frame: grey or RGB, perhaps with alpha
MOST_IN_PREVIEW = 100  # frames
PREVIEW_SIZE = 160  # pixels, at most
PREVIEW_EVERY = 3  # video frames per preview frame; doubled, once or repeatedly, in a long video


def seconds_per_step(env: Any, action_repeat: int) -> float:
    """Returns the simulated (or displayed) time of one `env.step`, in seconds."""
    dt = getattr(env.unwrapped, "dt", None)
    if dt is None:
        dt = 1.0 / (env.metadata.get("render_fps") or FPS)
    return float(dt) * action_repeat


class VideoRecorder:
    """Writes one episode at 30 frames per simulated second.

    A frame is rendered only if the video needs it; a task with fewer than 30 steps per second repeats frames.

    Args:
        path: the mp4 (H.264), which appears when it is complete.
        seconds_per_step: simulated time between two calls of `record`.

    Attributes:
        renders: False once the environment has failed to render.
    """

    def __init__(self, path: Path, seconds_per_step: float):
        self._path = path
        self._seconds_per_step = seconds_per_step
        self._steps = 0
        self._frames = 0
        self._file: NewFile | None = None
        self._shape: tuple[int, ...] | None = None
        self._writer: Any = None
        self._failed = False
        self._preview: list[np.ndarray] = []
        self._preview_every = PREVIEW_EVERY
        self.renders = True

    def record(self, env: Any) -> None:
        """Adds the current frame; call it after the reset and after each step. Failures are printed, not raised."""
        if not self._failed:
            try:
                self._record(env)
            except OSError as error:
                self._give_up(error)

    def _record(self, env: Any) -> None:
        num_frames = int(self._steps * self._seconds_per_step * FPS + 1e-6) + 1 - self._frames
        self._steps += 1
        if num_frames <= 0:
            return
        try:
            frame = np.asarray(env.render())
            if frame.ndim != 3 or frame.dtype != np.uint8 or min(frame.shape[:2]) < 2 or frame.shape[2] not in CHANNELS:
                raise TypeError(f"render gave {frame.dtype} of shape {frame.shape}, and no picture")
            if self._shape not in (None, frame.shape):
                raise ValueError(f"a frame of shape {frame.shape} after one of {self._shape}")
        except (Exception, SystemExit) as error:  # of a user's environment
            self.renders = False
            self._failed = True
            self.discard()
            reason = " ".join(str(error).split()) or "no reason given"
            print(f"No videos: this environment cannot be filmed ({type(error).__name__}: {reason})", flush=True)
            return
        self._shape = frame.shape
        frame = frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]  # H.264 needs even sizes
        if self._writer is None:
            self._path.parent.mkdir(exist_ok=True)  # without its parents, so that a deleted run folder is not recreated
            self._file = NewFile(self._path)
            self._writer = imageio.get_writer(
                self._file.partial,
                fps=FPS,
                codec="libx264",
                pixelformat="yuv420p",
                macro_block_size=2,
                ffmpeg_log_level="error",
            )
        for _ in range(num_frames):
            self._writer.append_data(frame)
        self._add_to_preview(frame, num_frames)
        self._frames += num_frames

    def _add_to_preview(self, frame: np.ndarray, num_frames: int) -> None:
        """Adds every `_preview_every`-th of `num_frames` equal frames to the preview."""
        if frame.shape[2] not in (3, 4):
            return
        shrink = -(-max(frame.shape[:2]) // PREVIEW_SIZE)
        for number in range(self._frames, self._frames + num_frames):
            if number % self._preview_every == 0:
                self._preview.append(np.asarray(Image.fromarray(frame[..., :3]).reduce(shrink)))
                if len(self._preview) > MOST_IN_PREVIEW:
                    del self._preview[1::2]
                    self._preview_every *= 2

    def preview(self) -> tuple[np.ndarray | None, float]:
        """Returns small frames of the video (T, H, W, 3), uint8, or None if it failed, and their frame rate."""
        frames = None if self._failed or not self._preview else np.stack(self._preview)
        return frames, FPS / self._preview_every

    def save(self) -> None:
        """Completes the file and moves it to its path."""
        if self._file is not None:
            self._writer.close()
            try:
                _require_whole(self._file.stream)
                self._file.complete()
            except OSError as error:
                self._give_up(error)
            self._file = None

    def _give_up(self, error: OSError) -> None:
        self._failed = True
        with suppress(OSError):
            self.discard()
        print(f"No {self._path}: it could not be written ({error.strerror or 'ffmpeg stopped'})", flush=True)

    def discard(self) -> None:
        """Deletes the incomplete file."""
        file, self._file = self._file, None
        if file is not None:
            try:
                if self._writer is not None:
                    self._writer.close()
            finally:
                file.discard()


def _require_whole(file: BinaryIO) -> None:
    """Raises OSError unless an mp4's boxes, its index included, fill the file: ffmpeg does not report a full disk."""
    kinds, offset, size = [], 0, file.seek(0, os.SEEK_END)
    while offset < size:
        file.seek(offset)
        header = file.read(16)
        length = int.from_bytes(header[:4], "big")
        kinds.append(header[4:8])
        offset += int.from_bytes(header[8:16], "big") if length == 1 else max(length, 8)
    if offset != size or b"moov" not in kinds:
        raise OSError(errno.EIO, "the file was cut short")


@contextmanager
def filming(path: Path, seconds_per_step: float) -> Iterator[VideoRecorder]:
    """Yields a recorder whose video is saved, or deleted if an exception is raised."""
    recorder = VideoRecorder(path, seconds_per_step)
    try:
        yield recorder
    except BaseException:
        recorder.discard()
        raise
    recorder.save()
