"""Trains a pendulum without Hydra: it swings up within 3000 steps (15 seconds on one core).

PYTHONPATH=. python examples/library.py
"""

from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch

from agent.actor import DiagGaussianActor
from agent.critic import CriticEnsemble
from agent.sac import SACAgent
from agent.temperature import LearnedTemperature
from logger import Logger
from run.library import evaluate, shapes, train
from sinks.console import ConsoleSink

torch.manual_seed(1)
env, size = gym.make("Pendulum-v1"), {"hidden_dim": 64, "hidden_depth": 2}
actor, critic = partial(DiagGaussianActor, log_std_bounds=(-5, 2), **size), partial(CriticEnsemble, **size)
rates = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3, "critic_tau": 0.02, "batch_size": 64, "discount": 0.95}
agent = SACAgent(**shapes(env), actor=actor, critic=critic, temperature=LearnedTemperature, **rates)
log = Logger(Path(), {"console": ConsoleSink})
train(agent, env, num_steps=3000, num_seed_steps=500, updates_per_step=2, logger=log)
print(f"mean return of five episodes: {np.mean(evaluate(agent, env, episodes=5)):.0f}")
