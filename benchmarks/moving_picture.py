"""Writes docs/img/policies.webp, the README's animation of trained policies (policies/) at real speed.

python benchmarks/moving_picture.py
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from trained_policies import FOLDER
from training import ROOT

from envs.episodes import EVAL_STREAM, episode_seed
from run.saving import run_policy
from video import seconds_per_step

TARGET = ROOT / "docs" / "img" / "policies.webp"
TASKS = (
    "cheetah_run",
    "walker_run",
    "hopper_hop",
    "quadruped_run",
    "cartpole_swingup",
    "ball_in_cup_catch",
    "finger_spin",
    "reacher_hard",
)
COLUMNS, TILE, FRAME_MS = 4, 200, 40  # pixels; 25 frames per second
START_S, LENGTH_S = 0.0, 7.0  # part of the first episode of each policy's last evaluation
QUALITY, MOST_BYTES = 45, 3_000_000


def shown_steps(step_s: float) -> list[int]:
    """Returns, for each frame, the number of decisions before it.

    Args:
        step_s: simulated seconds per decision.
    """
    moments_s = START_S + np.arange(round(LENGTH_S * 1000 / FRAME_MS)) * FRAME_MS / 1000
    return [int(moment / step_s + 1e-6) for moment in moments_s]


def film(path: Path) -> list[Image.Image]:
    """Renders one policy's frames, TILE pixels wide and high and labelled with the task's name."""
    policy = run_policy.load(path, "cpu", renders=True)
    env = policy.make_env(True)
    obs, _ = env.reset(seed=episode_seed(policy.cfg.seed, EVAL_STREAM, policy.step, 0))
    frames: list[Image.Image] = []
    taken = 0
    for step in shown_steps(seconds_per_step(env, policy.cfg.action_repeat)):
        while taken < step:
            obs, _, terminated, truncated, _ = env.step(policy.actor.act(obs[None])[0])
            if terminated or truncated:
                raise ValueError(f"{path.stem}: its episode ends within {LENGTH_S} s")
            taken += 1
        frames.append(_labelled(np.asarray(env.render()), path.stem))
    env.close()
    return frames


def _labelled(pixels: np.ndarray, name: str) -> Image.Image:
    frame = Image.fromarray(pixels).resize((TILE, TILE), Image.Resampling.LANCZOS)
    font = ImageFont.load_default(13)
    ImageDraw.Draw(frame).text((6, 4), name, "white", font, stroke_width=1, stroke_fill="black")
    return frame


def write(tiles: list[list[Image.Image]], target: Path) -> None:
    """Arranges the tiles in a grid and writes them as an animated WebP that repeats forever."""
    size = (COLUMNS * TILE, -(-len(tiles) // COLUMNS) * TILE)
    frames = []
    for moment in zip(*tiles, strict=True):
        frame = Image.new("RGB", size)
        for place, tile in enumerate(moment):
            frame.paste(tile, (place % COLUMNS * TILE, place // COLUMNS * TILE))
        frames.append(frame)
    first, *rest = frames
    first.save(target, save_all=True, append_images=rest, duration=FRAME_MS, loop=0, quality=QUALITY, method=6)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    write([film(FOLDER / f"{task}.pt") for task in TASKS], TARGET)
    size = TARGET.stat().st_size
    print(f"{TARGET.relative_to(ROOT)}: {size:,} bytes")
    if size > MOST_BYTES:
        sys.exit(f"more than {MOST_BYTES:,}: lower QUALITY or LENGTH_S")


if __name__ == "__main__":
    main()
