"""The parts as a library, without Hydra: a pendulum swings up within 3000 steps (a quarter of a minute on one core).

PYTHONPATH=. python examples/library.py
"""

from functools import partial
from pathlib import Path

import numpy as np
import torch

from agent.actor import DiagGaussianActor
from agent.critic import CriticEnsemble
from agent.sac import SACAgent
from agent.temperature import LearnedTemperature
from envs.make import make_env
from envs.seeded import SeededEpisodes
from logger import Logger
from replay_buffer import ReplayBuffer
from sinks.console import ConsoleSink

torch.manual_seed(1)
torch.set_num_threads(1)  # at this size a second thread only waits
cpu, size = torch.device("cpu"), {"hidden_dim": 64, "hidden_depth": 2}
env = SeededEpisodes(make_env("Pendulum-v1", seed=1), run_seed=1)
actor, critic = partial(DiagGaussianActor, log_std_bounds=(-5, 2), **size), partial(CriticEnsemble, **size)
spaces = {"obs_dim": 3, "action_dim": 1, "action_range": (-1, 1)}
parts = {"actor": actor, "critic": critic, "temperature": LearnedTemperature}
rates = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3, "critic_tau": 0.02, "batch_size": 64, "discount": 0.95}
agent = SACAgent(device=cpu, **spaces, **parts, **rates)
buffer, log = ReplayBuffer((3,), (1,), 3000, cpu), Logger(Path(), {"console": ConsoleSink})
obs, returns = env.reset()[0], [0.0]
for step in range(3000):
    action = agent.act(obs, sample=True)
    if step >= 500:
        agent.update(buffer, log, step)
        agent.update(buffer, log, step)
    next_obs, reward, terminated, truncated, _ = env.step(action)
    buffer.add(obs, action, reward, next_obs, terminated or truncated, terminated)
    obs, returns[-1] = next_obs, returns[-1] + reward
    if terminated or truncated:
        log.log("train/episode_reward", returns[-1], step + 1)
        log.dump(step + 1)
        obs, returns = env.reset()[0], [*returns, 0.0]
print(f"return of the last five episodes: {np.mean(returns[-6:-1]):.0f}")
