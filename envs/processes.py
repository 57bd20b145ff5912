"""Steps several environments together, in one process or several."""

import atexit
import multiprocessing
import os
from collections.abc import Callable
from functools import partial

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from envs.episodes import SeededEpisodes
from settings.operating_system import begin_helper


def make_train_envs(
    make_one: Callable[[], gym.Env],
    run_seed: int,
    num_envs: int = 1,
    asynchronous: bool = False,
    first_steps: int = 0,
) -> SyncVectorEnv | AsyncVectorEnv:
    """Makes the training environments, each a SeededEpisodes, as one vector environment.

    They do not reset automatically: `reset(options={"reset_mask": done})` starts the next episodes of environments that
    are done. `call("state_dict")` returns their states; `reset(options={"reset_mask": all, "states": states})` restores
    them. If `asynchronous`, each runs in its own process.
    """
    makers = [partial(_make_seeded, make_one, os.getpid(), run_seed, index, first_steps) for index in range(num_envs)]
    if not asynchronous:
        return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)
    multiprocessing.set_forkserver_preload(["__main__", "envs.make"])
    envs = AsyncVectorEnv(makers, context="forkserver", autoreset_mode=AutoresetMode.DISABLED)
    for process in envs.processes:  # at exit, multiprocessing would wait for them, and they ignore SIGTERM
        atexit.register(process.kill)
    return envs


def _make_seeded(make_one: Callable[[], gym.Env], run_process: int, *seed: int) -> gym.Env:
    if os.getpid() != run_process:  # AsyncVectorEnv makes one in the run's process too, to look at its spaces
        begin_helper()
    return SeededEpisodes(make_one(), *seed)
