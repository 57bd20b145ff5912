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
    """Maps an environment's observations to greedy actions, which `action_map` (dmc2gym.wrappers.ActionMap) scales to
    the environment's bounds. Images and vectors are two inputs."""

    def __init__(self, policy: Policy, action_map: Any):
        super().__init__()
        self.networks = nn.ModuleDict(policy.networks)  # registers their weights
        dtype = torch.int64 if action_map.is_discrete else torch.float32
        self.lowest = nn.Buffer(torch.tensor(action_map.low, dtype=dtype))
        self.halves = nn.Buffer(torch.tensor(action_map.half, dtype=dtype))
        self._shift = 0 if action_map.is_discrete else action_map.shift
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
    """Returns the contents of an ONNX file that includes the weights, for batches of any size like the example."""
    # Hides torch's messages about its own exporter and about optional packages.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    options: dict[str, Any] = {"input_names": list(example), "output_names": [OUTPUT], "external_data": False}
    options["dynamic_shapes"] = ({0: torch.export.Dim("batch")},) * len(example)
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        inputs = tuple(map(torch.from_numpy, example.values()))
        program: Any = torch.onnx.export(greedy.eval(), inputs, dynamo=True, verbose=False, **options)
    return program.model_proto.SerializeToString()
