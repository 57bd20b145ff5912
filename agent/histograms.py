"""Histograms of what an update saw, and of the weights and gradients that it left."""

from typing import Any, TypedDict

import torch
from torch import nn

from agent.networks.mlp import Linear


class HistogramInputs(TypedDict, total=False):
    """What an update saw, detached; an agent gives what it has."""

    q: torch.Tensor  # the critics' values, (N, B, 1)
    mu: torch.Tensor  # of the policy before the squashing, (B, ..., |A|)
    log_std: torch.Tensor


def log_histograms(seen: HistogramInputs, networks: dict[str, nn.Module], logger: Any, step: int) -> None:
    """Logs them all.

    Args:
        networks: by the names of their optimizers; their linear layers are shown, each member of an ensemble alone.
        logger: has `log_histogram` and `log_param` (see logger.Logger).
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
            if not isinstance(layer, Linear):
                continue
            for member in [None] if layer.num_members is None else range(layer.num_members):
                prefix = "" if member is None else f"q{member + 1}_"
                key = f"train_{name}/{prefix}fc{path.removeprefix('trunk.')}"
                logger.log_param(key, layer, step, log_frequency=1, member=member)
