"""Draws the evaluations of one run and frames of its last video.

python benchmarks/picture.py exp/<day>/<run> docs/img/trained_run.png
"""

import argparse
import csv
from pathlib import Path

import imageio.v3 as iio
import matplotlib
from omegaconf import OmegaConf

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main(run: Path, target: Path, num_frames: int = 6) -> None:
    with (run / "eval.csv").open(newline="", encoding="utf-8") as file:
        curve = [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
    video = max((run / "video").glob("*.mp4"), key=lambda path: int(path.stem))
    frames = iio.imread(video)
    config = OmegaConf.load(run / "config.yaml")
    figure = plt.figure(figsize=(10, 3.4), layout="constrained")
    grid = figure.add_gridspec(2, 2 + num_frames // 2, width_ratios=[1.5, 1.5] + [1] * (num_frames // 2))
    axes = figure.add_subplot(grid[:, :2])
    steps = [row["step"] for row in curve]
    low, high = ([row[f"episode_reward_{end}"] for row in curve] for end in ("min", "max"))
    axes.fill_between(steps, low, high, alpha=0.2)
    axes.plot(steps, [row["episode_reward"] for row in curve], marker="o", markersize=3)
    axes.set(
        title=f"{config.env}, {config.agent.name}, seed {config.seed}", xlabel="environment steps", ylabel="return"
    )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    for place in range(num_frames):
        moment = len(frames) // 4 + place * 5  # every sixth of a second, from a quarter of the video on
        axes = figure.add_subplot(grid[place // (num_frames // 2), 2 + place % (num_frames // 2)])
        axes.imshow(frames[moment])
        axes.set_title(f"{moment / 30:.2f} s", fontsize=8)
        axes.axis("off")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=100)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run with a video")
    parser.add_argument("target", type=Path, help="the png file")
    main(**vars(parser.parse_args()))
