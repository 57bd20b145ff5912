"""Small checkpoints for tests."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from replay_buffer import ReplayBuffer
from run.checkpoint import Checkpoints

MINE = {"agent": "sac", "env": "cheetah_run", "obs_dim": 3}


def filled(buffer: ReplayBuffer, until: int) -> ReplayBuffer:
    for i in range(buffer.num_added, until):
        buffer.add(np.full(3, i), np.zeros(2), i, np.full(3, i + 1), False, False)
    return buffer


def new_buffer(capacity: int = 10) -> ReplayBuffer:
    return ReplayBuffer((3,), (2,), capacity, torch.device("cpu"))


def state(value: int) -> dict[str, Any]:
    return {"weights": torch.full((4,), float(value)), "rng": np.random.default_rng(value).bit_generator.state}


def save(folder: Path, *steps: int, keep: int = 2, buffer: ReplayBuffer | None = None) -> Checkpoints:
    made = Checkpoints(folder, keep, MINE)
    for step in steps:
        rows = None if buffer is None else filled(buffer, step)
        made.save(step, {"agent": state(step), "run": {"step": step}}, rows)
    return made
