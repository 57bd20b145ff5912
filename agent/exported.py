"""Exports a policy's greedy actions as a graph for machines without this project: ONNX or TorchScript.

Both formats take batches of any size.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

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
        policy: acts in [-1, 1].
        low, high: the environment's bounds, in the shape of its actions.
    """

    def __init__(self, policy: Policy, low: np.ndarray, high: np.ndarray):
        super().__init__()
        self.networks = nn.ModuleDict(policy.networks)  # registers their weights
        self.lowest: torch.Tensor
        self.halves: torch.Tensor
        self.register_buffer("lowest", torch.tensor(low, dtype=torch.float32))
        self.register_buffer("halves", torch.tensor((high - low) / 2, dtype=torch.float32))
        self._policy = policy

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """(B, obs_dim) -> (B, *action_shape), float32."""
        action = self._policy.actions([obs])[0]
        return self.lowest + (action.reshape(-1, *self.lowest.shape) + 1.0) * self.halves


def write_onnx(greedy: Greedy, example: np.ndarray, path: Path) -> None:
    """Writes one file that includes the weights.

    Args:
        example: observations (B, obs_dim) to export with.
    """
    with torch.no_grad(), _quiet():
        torch.onnx.export(
            greedy.eval(),
            (torch.from_numpy(example),),
            path,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=_ANY_BATCH,
            external_data=False,
            dynamo=True,
            verbose=False,
        )


def write_torchscript(greedy: Greedy, example: np.ndarray, path: Path) -> None:
    """Writes one file that includes the weights; see write_onnx."""
    inputs = torch.from_numpy(example)
    with torch.no_grad(), _quiet():
        plain = torch.export.export(greedy.eval(), (inputs,), dynamic_shapes=_ANY_BATCH).module()
        traced = torch.jit.trace(plain, inputs, check_trace=False)
        program = io.BytesIO()  # given a path, torch would encode it as UTF-8, whatever the locale
        torch.jit.save(torch.jit.freeze(traced.eval()), program)
    path.write_bytes(program.getvalue())


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
