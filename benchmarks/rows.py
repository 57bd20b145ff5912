"""Measures what storing a step of N environments costs, and holding their noise: `python benchmarks/rows.py`.

cheetah_run's widths, one thread. Prints the median milliseconds of a step's 1-step and 3-step rows and of held noise.
"""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from sys import path

import numpy as np
import torch

path.insert(0, str(Path(__file__).resolve().parents[1]))
from agent.exploration import HeldNoise
from replay.adding import batch_adder
from replay.n_step import NStep
from replay_buffer import ReplayBuffer

CPU = torch.device("cpu")
OBS_DIM, ACTION_DIM, EPISODE, STEPS = 17, 6, 1000, 200


def milliseconds(step: Callable[[np.ndarray], object], num_envs: int) -> float:
    """The median time of a step, given which episodes ended in it."""
    rng, times = np.random.default_rng(0), []
    for _ in range(STEPS):
        ended = rng.random(num_envs) < 1 / EPISODE
        started_s = time.perf_counter()
        step(ended)
        times.append(1000 * (time.perf_counter() - started_s))
    return median(times)


def storing(num_envs: int, n: int) -> Callable[[np.ndarray], None]:
    """Stores a step of so many environments."""
    buffer, n_step = ReplayBuffer((OBS_DIM,), (ACTION_DIM,), max(100_000, 20 * num_envs), CPU), NStep(n, 0.99)
    obs, rewards = np.zeros((num_envs, OBS_DIM), np.float32), np.zeros(num_envs)
    add = batch_adder(buffer)
    return lambda ended: add(*n_step.rows(obs, obs[:, :ACTION_DIM], rewards, obs, ended, ended))


def holding(num_envs: int) -> Callable[[np.ndarray], None]:
    """Draws the noise of a step of so many environments, and lets go where an episode ended."""
    held = HeldNoise(CPU)

    def step(ended: np.ndarray) -> None:
        held(lambda rows: torch.randn(rows, ACTION_DIM), num_envs)
        held.release(ended)

    return step


def main() -> None:
    torch.set_num_threads(1)
    for num_envs in (1, 64, 4096):
        rows = [milliseconds(storing(num_envs, n), num_envs) for n in (1, 3)]
        noise = milliseconds(holding(num_envs), num_envs)
        print(f"{num_envs:5}: rows {rows[0]:.4f}, of 3 steps {rows[1]:.4f}, noise {noise:.4f}")


if __name__ == "__main__":
    main()
