"""Encodes frames as a GIF, which TensorBoard and Weights & Biases play."""

import io

import numpy as np
from PIL import Image

COLOURS = 256
SAMPLES = 8  # approximate number of frames from which the palette is computed


def make_gif(frames: np.ndarray, fps: float) -> bytes:
    """Returns an endless animation of frames (T, H, W, 3), uint8.

    All frames share one palette: a palette per frame takes ten times as long, and flickers.
    """
    sample = np.concatenate(frames[:: max(1, len(frames) // SAMPLES)])
    palette = Image.fromarray(sample).quantize(COLOURS, dither=Image.Dither.NONE)
    first, *others = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=others, duration=1000 / fps, loop=0, optimize=False)
    return file.getvalue()
