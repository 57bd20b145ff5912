"""Makes updates of one system on request and reports their times; benchmarks/speed.py lets several take turns.

    update_worker.py SYSTEM UNITS BATCH

Reads a count from standard input, makes that many updates, prints their seconds as a JSON list, and repeats until the
input ends. Every system has cheetah_run's sizes, two hidden layers, the same learning rates and a full replay buffer,
and samples its own batches. Only `floor` differs: it makes just the 16 matmuls of (batch, units) by (units, units) that
an update needs, with the faster of torch's two libraries.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import make_workspace

OBS_DIM, ACTION_DIM, NUM_STORED, LR = 17, 6, 100_000, 1e-4
Update = Callable[[], object]


def floor(units: int, batch: int) -> Update:
    from agent.networks.mlp import LARGE_OF_COLUMNS, fast_matmul

    x, gradient, weight = torch.randn(batch, units), torch.randn(batch, units), torch.randn(units, units)

    def update() -> None:
        for _ in range(8):  # forward: actor 2, target critics 2, critics 4
            fast_matmul(x, weight)
        for _ in range(3):  # weights' gradients: critics 2, actor 1
            fast_matmul(x.t(), gradient, least=LARGE_OF_COLUMNS)
        for _ in range(5):  # inputs' gradients: critics 4, actor 1
            fast_matmul(gradient, weight.t())

    return update


def ours(units: int, batch: int) -> Update:
    widths = [f"agent.actor.hidden_dim={units}", f"agent.critic.hidden_dim={units}", f"agent.batch_size={batch}"]
    run = ["env=cheetah_run", f"replay_buffer_capacity={NUM_STORED}", "save_video=false", "eval_in_background=false"]
    with redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as folder:  # standard output carries the answers
        workspace = make_workspace(Path(folder), [*run, *widths, "device=cpu"])
    for obs, action, reward, next_obs in transitions():
        workspace.replay_buffer.add(obs, action, reward, next_obs, False, False)
    return lambda: workspace.agent.update(workspace.replay_buffer, workspace.logger, 0)


def transitions() -> Any:
    random = np.random.default_rng(0)
    obs = random.standard_normal((NUM_STORED + 1, OBS_DIM), np.float32)
    actions = random.uniform(-1, 1, (NUM_STORED, ACTION_DIM)).astype(np.float32)
    rewards = random.uniform(0, 1, NUM_STORED)
    return zip(obs, actions, rewards, obs[1:], strict=False)


def peer(make: Any, **kwargs: Any) -> Any:
    """Builds an agent of another library with cheetah_run's sizes and a full replay buffer."""
    import gymnasium as gym
    from stable_baselines3.common.logger import configure

    class Sizes(gym.Env):  # only its spaces are used
        observation_space = gym.spaces.Box(-np.inf, np.inf, (OBS_DIM,), np.float32)
        action_space = gym.spaces.Box(-1.0, 1.0, (ACTION_DIM,), np.float32)

        def reset(self, **_: Any) -> Any:
            return np.zeros(OBS_DIM, np.float32), {}

    model = make("MlpPolicy", Sizes(), learning_rate=LR, buffer_size=NUM_STORED, seed=0, **kwargs)
    model.set_logger(configure(None, []))
    model._setup_learn(1)
    for obs, action, reward, next_obs in transitions():
        model.replay_buffer.add(obs[None], next_obs[None], action[None], np.array([reward]), np.array([False]), [{}])
    return model


def sb3(units: int, batch: int) -> Update:
    """Makes two updates per call, so that targets can move at every second update; `main` halves the time."""
    from stable_baselines3 import SAC

    networks = {"net_arch": [units, units]}
    model = peer(SAC, batch_size=batch, target_update_interval=2, policy_kwargs=networks, device="cpu")
    return lambda: model.train(2, batch)


def sbx(units: int, batch: int) -> Update:
    """Makes one update per call; SBX moves its targets at every update."""
    from sbx import SAC

    model = peer(SAC, batch_size=batch, policy_kwargs={"net_arch": [units, units]})
    return lambda: model.train(1, batch)


def main() -> None:
    system, units, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    make: Any = {"floor": floor, "ours": ours, "sb3": sb3, "sbx": sbx}[system]
    update, per_call = make(units, batch), 2 if system == "sb3" else 1
    update()
    print("ready", flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            started = time.perf_counter()
            update()
            seconds.append((time.perf_counter() - started) / per_call)
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
