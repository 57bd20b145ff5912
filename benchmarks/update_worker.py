"""Makes updates of one system on request and reports their times; benchmarks/speed.py lets several take turns.

    update_worker.py SYSTEM UNITS BATCH PRECISION

Reads a count from standard input, makes that many updates, prints their seconds as a JSON list, and repeats until the
input ends. Every system has cheetah_run's sizes, two hidden layers, the same learning rates and a full replay buffer,
and samples its own batches. Only `floor` differs: it makes just the 16 matmuls of (batch, units) by (units, units) that
an update needs, with the faster of torch's two libraries.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

OBS_DIM, ACTION_DIM, NUM_STORED, LR = 17, 6, 100_000, 1e-4
Update = Callable[[], object]


def floor(units: int, batch: int, precision: str) -> Update:
    from agent.networks.matmul import LARGE_OF_COLUMNS, fast_matmul

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    x, gradient = (torch.randn(batch, units).to(dtype) for _ in range(2))
    weight = torch.randn(units, units).to(dtype)

    def update() -> None:
        for _ in range(8):  # forward: actor 2, target critics 2, critics 4
            fast_matmul(x, weight)
        for _ in range(3):  # weights' gradients: critics 2, actor 1
            fast_matmul(x.t(), gradient, least=LARGE_OF_COLUMNS)
        for _ in range(5):  # inputs' gradients: critics 4, actor 1
            fast_matmul(gradient, weight.t())

    return update


def ours(overrides: list[str]) -> Update:
    from logger import Logger

    agent, buffer = agent_and_buffer(overrides)
    logger = Logger(Path(), {})
    return lambda: agent.update(buffer, logger, 0)


def agent_and_buffer(overrides: list[str]) -> tuple[Any, Any]:
    """Builds an agent with cheetah_run's sizes (or images instead of its obs) and a full replay buffer."""
    from hydra.utils import get_object, instantiate

    from replay.frames import FrameBuffer
    from run.agents import build_agent
    from run.env_spec import EnvSpec
    from run.execution import choose_execution, set_execution
    from run.machine import resolve_device, set_precision
    from settings import compose
    from settings.obs_spec import ObsSpec
    from settings.operating_system import keep_freed_memory
    from settings.schema import check

    cfg = check(compose.plain(compose.compose_config("train", overrides)))
    device = resolve_device(cfg.device)
    if cfg.num_threads is not None:
        torch.set_num_threads(cfg.num_threads)
    keep_freed_memory()
    precision = set_precision(cfg.precision, device)
    stack = 3 if cfg.frame_stack == "auto" else cfg.frame_stack
    image = (3 * stack, cfg.image_size, cfg.image_size)
    obs_spec = ObsSpec(image, frame_stack=stack) if cfg.from_pixels else ObsSpec(vector_dim=OBS_DIM)
    is_discrete = get_object(cfg.agent["_target_"]).discrete_actions
    action = ((1,), ACTION_DIM) if is_discrete else ((ACTION_DIM,),)
    agent = build_agent(cfg, EnvSpec(obs_spec, *action), device)
    agent.autocast_dtype = torch.bfloat16 if precision == "bf16" else None
    set_execution(agent, choose_execution(cfg.execution, agent, device)[0], device)
    if cfg.from_pixels:
        capacity = cfg.replay_buffer_capacity
        buffer: Any = FrameBuffer(image, (ACTION_DIM,), capacity, device, obs_spec=obs_spec)
    else:
        make_buffer = instantiate(cfg.replay_buffer, capacity=NUM_STORED, _convert_="all")
        buffer = make_buffer(obs_shape=(OBS_DIM,), action_shape=action[0], device=device)
    for obs, actions, reward, next_obs in image_transitions(image, capacity) if cfg.from_pixels else transitions():
        buffer.add(obs, abs(actions[:1]).round() if is_discrete else actions, reward, next_obs, False, False)
    return agent, buffer


def ours_of_size(units: int, batch: int, precision: str, replay_buffer: str = "uniform") -> Update:
    widths = [f"agent.actor.hidden_dim={units}", f"agent.critic.hidden_dim={units}"]
    return ours([f"agent.batch_size={batch}", *widths, f"precision={precision}", f"replay_buffer={replay_buffer}"])


def transitions() -> Any:
    random = np.random.default_rng(0)
    obs = random.standard_normal((NUM_STORED + 1, OBS_DIM), np.float32)
    actions = random.uniform(-1, 1, (NUM_STORED, ACTION_DIM)).astype(np.float32)
    rewards = random.uniform(0, 1, NUM_STORED)
    return zip(obs, actions, rewards, obs[1:], strict=False)


def image_transitions(image: tuple[int, ...], count: int) -> Any:
    random = np.random.default_rng(0)
    obs = random.integers(0, 256, image, np.uint8)
    for _ in range(count):
        next_obs = np.concatenate([obs[3:], random.integers(0, 256, (3, *image[1:]), np.uint8)])
        yield obs, random.uniform(-1, 1, ACTION_DIM).astype(np.float32), random.uniform(0, 1), next_obs
        obs = next_obs


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


def sb3(units: int, batch: int, precision: str) -> Update:
    """Makes two updates per call, so that targets can move at every second update; `main` halves the time."""
    from stable_baselines3 import SAC

    networks = {"net_arch": [units, units]}
    model = peer(SAC, batch_size=batch, target_update_interval=2, policy_kwargs=networks, device="cpu")
    return lambda: model.train(2, batch)


def sbx(units: int, batch: int, precision: str) -> Update:
    """Makes one update per call; SBX moves its targets at every update."""
    from sbx import SAC

    model = peer(SAC, batch_size=batch, policy_kwargs={"net_arch": [units, units]})
    return lambda: model.train(1, batch)


REPLAY_BUFFERS = ("prioritized", "lap", "fading")
UPDATES_PER_CALL = {"sb3": 2}


def main() -> None:
    system, units, batch, precision = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    systems = {"floor": floor, "ours": ours_of_size, "sb3": sb3, "sbx": sbx}
    systems |= {name: partial(ours_of_size, replay_buffer=name) for name in REPLAY_BUFFERS}
    update = systems[system](units, batch, precision)
    per_call = UPDATES_PER_CALL.get(system, 1)
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
