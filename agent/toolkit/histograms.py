"""Histograms of an update: Q values, policy outputs, weights and gradients."""

from typing import Any, TypedDict

from torch import Tensor, nn

from agent.networks.mlp import Linear


class UpdateOutputs(TypedDict, total=False):
    """Tensors that an update step returns for histograms and, the last two, for prioritised replay; all optional."""

    q: Tensor  # Q values, (N, B, 1)
    mu: Tensor  # mean of the policy before squashing, (B, ..., |A|)
    log_std: Tensor
    log_probs: Tensor  # of discrete actions, (B, |A|)
    priorities: Tensor  # (B,), float32
    index: Tensor  # (B,), int64: the places of their rows in the replay buffer


def log_histograms(inputs: UpdateOutputs, networks: dict[str, nn.Module], logger: Any, step: int) -> None:
    """Logs histograms of the inputs and of each learning layer of the networks, by optimizer name."""
    values = {f"train_critic/q{i}_hist": member for i, member in enumerate(inputs.get("q", ()), start=1)}
    if "mu" in inputs:
        values["train_actor/mu_hist"] = inputs["mu"]
    if "log_std" in inputs:
        values["train_actor/std_hist"] = inputs["log_std"].exp()
    if "log_probs" in inputs:
        values["train_actor/log_prob_hist"] = inputs["log_probs"]
    for key, tensor in values.items():
        logger.log_histogram(key, tensor, step, log_frequency=1)
    for name, network in networks.items():
        for path, layer in network.named_modules():
            if not isinstance(layer, nn.Conv2d | Linear) or not layer.weight.requires_grad:
                continue
            if isinstance(layer, nn.Conv2d):
                logger.log_param(f"train_{name}/conv{path.rpartition('.')[2]}", layer, step, log_frequency=1)
                continue
            short = path.removeprefix("network.").removeprefix("trunk.")
            for member in [None] if layer.num_members is None else range(layer.num_members):
                prefix = "" if member is None else f"q{member + 1}_"
                logger.log_param(f"train_{name}/{prefix}fc{short}", layer, step, log_frequency=1, member=member)
