"""Measures the time to store a step of N environments and to hold their noise: `python benchmarks/rows.py`.

Uses cheetah_run's widths and one thread. Prints median milliseconds per step for 1-step rows, 3-step rows and noise.
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
from replay.n_step import NStep, batch_adder
from replay_buffer import ReplayBuffer

CPU = torch.device("cpu")
OBS_DIM, ACTION_DIM, EPISODE, STEPS = 17, 6, 1000, 200


def milliseconds(step: Callable[[np.ndarray], object], num_envs: int) -> float:
    """Returns the median time of `step`, which is told in which environments an episode ended."""
    rng, times = np.random.default_rng(0), []
    for _ in range(STEPS):
        ended = rng.random(num_envs) < 1 / EPISODE
        started_s = time.perf_counter()
        step(ended)
        times.append(1000 * (time.perf_counter() - started_s))
    return median(times)


def storing(num_envs: int, n: int) -> Callable[[np.ndarray], None]:
    """Returns a function that stores a step of `num_envs` environments."""
    buffer, n_step = ReplayBuffer((OBS_DIM,), (ACTION_DIM,), max(100_000, 20 * num_envs), CPU), NStep(n, 0.99)
    obs, rewards = np.zeros((num_envs, OBS_DIM), np.float32), np.zeros(num_envs)
    add = batch_adder(buffer)
    return lambda ended: add(*n_step.rows(obs, obs[:, :ACTION_DIM], rewards, obs, ended, ended))


def holding(num_envs: int) -> Callable[[np.ndarray], None]:
    """Returns a function that draws held noise for `num_envs` environments and releases it where an episode ended."""
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
