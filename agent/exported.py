"""Exports a policy's greedy actions as an ONNX graph, for machines without this project."""

import logging
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agent.policy import Policy
from settings.obs_spec import ObsSpec

INPUT, OUTPUT = "obs", "action"
INPUTS_OF_MIXED = ("image", "vector")
Inputs = dict[str, np.ndarray]  # the graph's inputs: name -> observations


def inputs_of(spec: ObsSpec, obs: np.ndarray) -> Inputs:
    """Returns the graph's inputs for observations (B, *shape): the actor's part, with images and vectors separated."""
    seen = spec.of_actor(obs)
    if not spec.is_mixed:
        return {INPUT: seen}
    parts = zip(INPUTS_OF_MIXED, spec.unpack(seen, np.float32), strict=True)
    return {name: np.ascontiguousarray(part) for name, part in parts if part.size}


class Greedy(nn.Module):
    """Maps an environment's observations to greedy actions within the environment's bounds.

    It includes the observation normaliser and the critic, if the policy has them. Images and vectors are two inputs.

    Args:
        policy: its actions are in [-1, 1], or integers from 0.
        own_actions: the map to the environment's actions (see dmc2gym.wrappers.ActionMap).
    """

    def __init__(self, policy: Policy, own_actions: Any):
        super().__init__()
        self.networks = nn.ModuleDict(policy.networks)  # registers their weights
        self.lowest: Tensor
        self.halves: Tensor
        dtype = torch.int64 if own_actions.is_discrete else torch.float32
        self.register_buffer("lowest", torch.tensor(own_actions.low, dtype=dtype))
        self.register_buffer("halves", torch.tensor(own_actions.half, dtype=dtype))
        self._shift = 0 if own_actions.is_discrete else own_actions.shift
        self._policy = policy

    def forward(self, obs: Tensor, vector: Tensor | None = None) -> Tensor:
        """Maps (B, obs_dim), or images and vectors (B, …), to (B, *action_shape), float32, or int64 if discrete."""
        actor = self._policy.actor
        if getattr(actor, "numbers", None) is not None and obs.dim() > 2:
            features = actor.encoder.convolutions(obs)
            obs = features if vector is None else torch.cat([features, vector], dim=1)
        action = self._policy.actions([obs])[0]
        return self.lowest + (action.reshape(-1, *self.lowest.shape) + self._shift) * self.halves


def onnx_bytes(greedy: Greedy, example: Inputs) -> bytes:
    """Returns the contents of an ONNX file that includes the weights, for batches of any size.

    Args:
        example: inputs to export with, B rows of each.
    """
    batch = torch.export.Dim("batch")
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # hides torch's messages about its own exporter and about optional packages
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            program = torch.onnx.export(
                greedy.eval(),
                tuple(map(torch.from_numpy, example.values())),
                input_names=list(example),
                output_names=[OUTPUT],
                dynamic_shapes=tuple({0: batch} for _ in example),
                external_data=False,
                dynamo=True,
                verbose=False,
            )
    finally:
        logger.setLevel(level)
    return program.model_proto.SerializeToString()  # type: ignore[union-attr]
