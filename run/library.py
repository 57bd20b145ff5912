"""The framework as a library: train and evaluate an agent, without Hydra and without a run's folder.

docs/LIBRARY.md explains it, and README.md has an example.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium as gym
import torch

from agent import Agent
from envs.episodes import make_vector_env
from envs.make import adapt
from logger import Logger
from replay.device import STORAGES, fit_storage
from replay.n_step import NStep
from run.agents import EnvSpec
from run.evaluation.evaluations import Evaluations
from run.evaluation.evaluator import Evaluator
from run.execution import choose_execution, resolve_device, set_execution
from run.loop import Loop
from run.progress import Progress
from run.stopping import Stopping

MIN_THREADED_WEIGHTS = 512 * 512  # a smaller matrix is multiplied in less time than a second thread takes to wake up


class TrainResult(NamedTuple):
    steps: int  # environment steps, summed over the environments
    episodes: int  # that ended
    last_return: float  # mean return of the last evaluation; nan without one
    replay_buffer: Any  # which a later call may continue to fill


def shapes(env: gym.Env, device: str = "auto") -> dict[str, Any]:
    """Returns the arguments of an agent's constructor that depend on the environment and the device: `obs_dim`,
    `action_dim`, `action_range` and `device`. The latter is auto (cuda if there is one), cpu, cuda or cuda:<number>."""
    return EnvSpec.of(_adapt(env)).agent_arguments() | {"device": resolve_device(device)}


def train(
    agent: Agent,
    env: gym.Env | Sequence[gym.Env],
    num_steps: int,
    *,
    num_seed_steps: int = 5000,
    action_repeat: int = 1,
    update_every: int = 1,
    updates_per_step: float = 1.0,
    replay_buffer: Any = None,
    logger: Any = None,
    evaluator: Any = None,
    eval_frequency: int = 10_000,
    checkpoint: Callable[[int], Any] | None = None,
    checkpoint_frequency: int = 20_000,
    seed: int = 1,
) -> TrainResult:
    """Trains an agent with the training loop of `train.py`.

    Arguments named like a key of config/train.yaml have the same meaning. Schedules restart at step 0 in each call.

    Args:
        env: an environment, or several of the same shapes, which are stepped together. Without a time limit of its own,
            each gets one of 1000 steps.
        num_steps: environment steps, summed over the environments.
        replay_buffer: None creates one that holds all transitions.
        logger, evaluator, checkpoint: see docs/LIBRARY.md; None logs, evaluates or saves nothing.
        seed: seed of the episodes and of the random actions; the agent's own noise is seeded when it is built.

    Raises:
        RunError: if an action, observation, reward or loss is not finite.
    """
    env_list = [_adapt(each, action_repeat) for each in ([env] if isinstance(env, gym.Env) else env)]
    envs = make_vector_env(partial(next, iter(env_list)), seed, len(env_list))
    spec, device = EnvSpec.of(env_list[0]), getattr(agent, "device", torch.device("cpu"))
    if replay_buffer is None:
        storage = fit_storage("auto", device, True, spec.obs, spec.action_shape, num_steps)
        replay_buffer = STORAGES[storage](spec.obs.shape, spec.action_shape, num_steps, device, seed)
    set_execution(agent, choose_execution("auto", agent, device), device)
    logger = Logger(Path(), {}, log_frequency=0) if logger is None else logger
    cfg = SimpleNamespace(
        num_train_steps=num_steps,
        num_seed_steps=num_seed_steps,
        num_envs=len(env_list),
        action_repeat=action_repeat,
        update_every=update_every,
        updates_per_step=updates_per_step,
        updates_while_seeding=False,
        eval_frequency=eval_frequency if evaluator is not None else 0,
        checkpoint_frequency=checkpoint_frequency if checkpoint is not None else 0,
    )
    first_batch = 1 if getattr(replay_buffer, "with_replacement", True) else getattr(agent, "batch_size", 1)
    progress, stopping = Progress(cfg, first_batch), Stopping()
    evaluations = Evaluations(agent, None if evaluator is None else lambda: evaluator, logger, progress, stopping)
    save_once = cache(checkpoint or (lambda step: None))
    run = SimpleNamespace(
        cfg=cfg,
        envs=envs,
        agent=agent,
        seed_policy=spec.uniform_policy(seed),
        n_step=NStep(1),
        replay_buffer=replay_buffer,
        data=SimpleNamespace(batches=replay_buffer),
        logger=logger,
        progress=progress,
        evaluations=evaluations,
        stopping=stopping,
        save=lambda is_last: save_once(progress.step),
        may_step_in_thread=False,
    )
    num_threads = torch.get_num_threads()
    sizes = [each.numel() for module in getattr(agent, "modules", {}).values() for each in module.parameters()]
    torch.set_num_threads(1 if sizes and max(sizes) < MIN_THREADED_WEIGHTS else num_threads)
    try:
        Loop(run).run()
    finally:
        torch.set_num_threads(num_threads)
    return TrainResult(progress.step, progress.episode, progress.last_return, replay_buffer)


def evaluate(
    agent: Any, env: gym.Env, episodes: int = 10, sample: bool = False, *, action_repeat: int = 1, seed: int = 1
) -> list[float]:
    """Runs episodes of an agent, or of a policy alone (agent.policy.load_policy); returns their undiscounted
    returns. Actions are greedy, or drawn with the agent's random numbers. After greedy ones training is the same."""
    wrapped = _adapt(env, action_repeat)
    return Evaluator(lambda _: wrapped, seed, episodes, None, max_envs=1, sample=sample).evaluate(agent, step=0).returns


class _StaysOpen(gym.Wrapper):
    """Keeps the user's environment open when the wrappers around it are closed."""

    def close(self) -> None: ...


def _adapt(env: gym.Env, action_repeat: int = 1) -> gym.Env:
    """Wraps the user's environment: flat observations, actions in [-1, 1], held for `action_repeat` steps."""
    return adapt(_StaysOpen(env), env.spec.id if env.spec else type(env.unwrapped).__name__, action_repeat)
