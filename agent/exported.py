"""Exports a policy's greedy actions as a graph: ONNX or TorchScript, for machines without this project.

Both formats take batches of any size.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from agent.policy import Policy

INPUT, OUTPUT = "obs", "action"
_ANY_BATCH = {INPUT: {0: torch.export.Dim("batch")}}


class Greedy(nn.Module):
    """Maps an environment's observations to greedy actions within the environment's bounds.

    It includes the observation normaliser and the critic, if the policy has them.

    Args:
        policy: acts in [-1, 1], or by integers from 0.
        own_actions: the map to the environment's actions (see dmc2gym.wrappers.OwnActions).
    """

    def __init__(self, policy: Policy, own_actions: Any):
        super().__init__()
        self.networks = nn.ModuleDict(policy.networks)  # registers their weights
        self.lowest: torch.Tensor
        self.halves: torch.Tensor
        dtype = torch.int64 if own_actions.is_discrete else torch.float32
        self.register_buffer("lowest", torch.tensor(own_actions.low, dtype=dtype))
        self.register_buffer("halves", torch.tensor(own_actions.half, dtype=dtype))
        self._shift = 0 if own_actions.is_discrete else own_actions.shift
        self._policy = policy

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """(B, obs_dim) -> (B, *action_shape), float32 or, of discrete actions, int64."""
        action = self._policy.actions([obs])[0]
        return self.lowest + (action.reshape(-1, *self.lowest.shape) + self._shift) * self.halves


def onnx_bytes(greedy: Greedy, example: np.ndarray) -> bytes:
    """Returns the contents of an ONNX file that includes the weights.

    Args:
        example: observations (B, obs_dim) to export with.
    """
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            greedy.eval(),
            (torch.from_numpy(example),),
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=_ANY_BATCH,
            external_data=False,
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # it is for a file alone
    return program.model_proto.SerializeToString()


def torchscript_bytes(greedy: Greedy, example: np.ndarray) -> bytes:
    """Returns the contents of a TorchScript file that includes the weights; see onnx_bytes."""
    inputs = torch.from_numpy(example)
    with torch.no_grad(), _quiet():
        plain = torch.export.export(greedy.eval(), (inputs,), dynamic_shapes=_ANY_BATCH).module()
        traced = torch.jit.trace(plain, inputs, check_trace=False)
        program = io.BytesIO()
        torch.jit.save(torch.jit.freeze(traced.eval()), program)
    return program.getvalue()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences torch's messages about its own exporter and about optional packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
