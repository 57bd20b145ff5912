"""Measures the cost of learning from pixels: an update, a rendered step, and the memory of 100 000 frames.

    python studies/pixels.py [--updates 12] [--threads 1]

Counts operations and takes median processor times on cartpole_swingup; MUJOCO_GL chooses the renderer. Writes
benchmarks/results/pixels.json.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import instruments
import numpy as np
import psutil
import torch
from machine import circumstances
from torch.utils.flop_counter import FlopCounterMode
from update_worker import agent_and_buffer

from logger import Logger
from replay.frames import FrameBuffer, nbytes
from run import environments
from settings import compose
from settings.obs_spec import ObsSpec
from settings.schema import check

RESULT = instruments.ROOT / "benchmarks" / "results" / "pixels.json"
PRESET = ("preset=pixels_cpu", "env=cartpole_swingup", "replay_buffer_capacity=2000")
SIZES: dict[str, tuple[str, ...]] = {
    "preset=pixels_cpu": PRESET,
    "32 filters": (*PRESET, "agent.encoder.channels=32"),
    "two views": (*PRESET, "agent.augmentation.num_views=2"),
    "strides of 2, 2, 2, 1": (*PRESET, "agent.encoder.strides=[2,2,2,1]"),
    "strides of 2, 1, 1, 1": (*PRESET, "agent.encoder.strides=[2,1,1,1]"),
}
FRAMES = 100_000


def milliseconds(work: Callable[[], object], count: int) -> float:
    """Returns the median processor time of a call, summed over threads, in milliseconds."""
    times_ms = []
    for _ in range(count):
        started_s = time.process_time()
        work()
        times_ms.append(1e3 * (time.process_time() - started_s))
    return statistics.median(times_ms)


def update(overrides: tuple[str, ...], threads: int, count: int) -> dict[str, float]:
    """Returns GFLOP and milliseconds per update (of two, one steps the actor), and the milliseconds of sampling."""
    logger = Logger(Path(), {})
    agent, buffer = agent_and_buffer([*overrides, f"num_threads={threads}", "execution=eager"])
    agent.update(buffer, logger, 0)
    with FlopCounterMode(display=False) as counter:
        for _ in range(2):
            agent.update(buffer, logger, 0)
    agent, buffer = agent_and_buffer([*overrides, f"num_threads={threads}"])

    def two() -> None:
        for _ in range(2):
            agent.update(buffer, logger, 0)

    for _ in range(2):  # records both kinds of update
        two()
    sampled = milliseconds(lambda: buffer.sample(agent.batch_size), count)
    return {
        "gflop": counter.get_total_flops() / 2e9,
        "milliseconds": milliseconds(two, count) / 2,
        "of_it_sampling": sampled,
    }


def environment() -> dict[str, float]:
    cfg = check(compose.plain(compose.compose_config("train", list(PRESET))))
    env = environments.make_env_factory(cfg, "training")(False)
    env.reset(seed=1)
    action = env.action_space.sample()
    step = milliseconds(lambda: env.step(action), 30)
    env.close()
    return {"step_ms": step}


def memory() -> dict[str, float]:
    """Fills a replay buffer with 64 x 64 frames; returns its bytes per byte of a frame and the time to add one."""
    process, random = psutil.Process(), np.random.default_rng(0)
    before = process.memory_info().rss
    buffer = FrameBuffer((9, 64, 64), (6,), FRAMES, torch.device("cpu"), frame_stack=3)
    obs, seconds = np.zeros((9, 64, 64), np.uint8), 0.0
    while buffer.num_added < FRAMES:
        next_obs = np.concatenate([obs[3:], random.integers(0, 256, (3, 64, 64), np.uint8)])
        started_s = time.process_time()
        buffer.add(obs, np.zeros(6, np.float32), 0.0, next_obs, False, False)
        seconds += time.process_time() - started_s
        obs = next_obs
    used, of_frames = process.memory_info().rss - before, FRAMES * 3 * 64 * 64
    promised = nbytes(ObsSpec((9, 64, 64), frame_stack=3), (6,), FRAMES)
    return {
        "bytes_per_byte_of_a_frame": used / of_frames,
        "when_full": promised / of_frames,
        "add_ms": 1e3 * seconds / FRAMES,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        **circumstances(),
        "opengl": os.environ.get("MUJOCO_GL"),
        "environment": environment(),
        "memory": memory(),
        "updates": {name: update(overrides, arguments.threads, arguments.updates) for name, overrides in SIZES.items()},
    }
    print(json.dumps(result, indent=1))
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
