"""What an update saw, and the weights and gradients that it left: histograms, and a strip of images."""

from typing import Any, TypedDict

import torch
from torch import nn

from agent.networks.mlp import Linear


class HistogramInputs(TypedDict, total=False):
    """What an update saw, detached; an agent gives what it has. The last two are for the replay buffer."""

    q: torch.Tensor  # the critics' values, (N, B, 1)
    mu: torch.Tensor  # of the policy before the squashing, (B, ..., |A|)
    log_std: torch.Tensor
    images: torch.Tensor  # (rows, views, C, H, W), uint8, as the networks get them
    priorities: torch.Tensor  # (B,), float32
    index: torch.Tensor  # (B,), int64, of those rows


def log_histograms(seen: HistogramInputs, networks: dict[str, nn.Module], logger: Any, step: int) -> None:
    """Logs them all.

    Args:
        networks: by the names of their optimizers; their layers are shown, each member of an ensemble alone.
        logger: has `log_histogram`, `log_param` and, for images, `log_image` (see logger.Logger).
    """
    values = {f"train_critic/q{i}_hist": member for i, member in enumerate(seen.get("q", ()), start=1)}
    if "mu" in seen:
        values["train_actor/mu_hist"] = seen["mu"]
    if "log_std" in seen:
        values["train_actor/std_hist"] = seen["log_std"].exp()
    for key, tensor in values.items():
        logger.log_histogram(key, tensor, step, log_frequency=1)
    for name, network in networks.items():
        for path, layer in network.named_modules():
            if isinstance(layer, nn.Conv2d) and layer.weight.requires_grad:
                logger.log_param(f"train_{name}/conv{path.rpartition('.')[2]}", layer, step, log_frequency=1)
            if not isinstance(layer, Linear):
                continue
            short = path.removeprefix("network.").removeprefix("trunk.")
            for member in [None] if layer.num_members is None else range(layer.num_members):
                prefix = "" if member is None else f"q{member + 1}_"
                logger.log_param(f"train_{name}/{prefix}fc{short}", layer, step, log_frequency=1, member=member)
    if "images" in seen:
        logger.log_image("train/images", strip(seen["images"]), step)


def strip(images: torch.Tensor) -> torch.Tensor:
    """Stacks (rows, views, C, H, W) as one picture (height, width, 3): a row of frames for each, view after view.

    Frames have three channels, or one where C is no multiple of three.
    """
    channels = 3 if images.shape[2] % 3 == 0 else 1
    frames = images.unflatten(2, (-1, channels))  # (rows, views, frames, channels, H, W)
    picture = frames.permute(0, 4, 1, 2, 5, 3)  # (rows, H, views, frames, W, channels)
    rows, height, views, stacked, width, _ = picture.shape
    return picture.reshape(rows * height, views * stacked * width, channels).expand(-1, -1, 3)
