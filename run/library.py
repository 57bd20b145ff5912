"""The framework as a library: train, evaluate, save and load an agent, without Hydra and without a run's folder.

>>> env = gymnasium.make("Pendulum-v1")
>>> agent = SACAgent(**shapes(env), critic=..., actor=..., temperature=LearnedTemperature)
>>> train(agent, env, num_steps=10_000)
>>> evaluate(agent, env, episodes=10)
>>> save(agent, "pendulum.pt")

docs/LIBRARY.md explains it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import gymnasium as gym
import torch
from annotated_types import Ge, Gt, Le, Lt

from agent import Agent
from agent.toolkit.priorities import require_support
from envs.adapter import adapt
from envs.processes import make_train_envs
from logger import Logger
from replay import frames
from replay.device import STORAGES, choose_storage
from replay.n_step import NStep
from run import machine
from run.agents import require_kind
from run.env_spec import EnvSpec
from run.evaluation.evaluations import Evaluations
from run.evaluation.evaluator import Evaluator
from run.execution import choose_execution, set_execution
from run.loop import Loop, LoopParts
from run.progress import Plan, Progress
from run.saving.agent_file import load, save
from run.stopping import Stopping
from settings.types import Execution, NonNegativeInt, PositiveInt
from settings.validated import checked
from utils import UserError

__all__ = ["TrainResult", "evaluate", "load", "save", "shapes", "train"]

Seed = Annotated[int, Ge(0), Lt(2**32)]
CPU = torch.device("cpu")


@dataclass(frozen=True)
class TrainResult:
    """The result of `train`.

    Attributes:
        steps: environment steps, summed over the environments.
        episodes: number of finished episodes.
        last_return: mean return of the last evaluation; nan without an evaluator.
        replay_buffer: the buffer with the transitions, which a later call may continue to fill.
    """

    steps: int
    episodes: int
    last_return: float
    replay_buffer: Any


@checked
def shapes(env: gym.Env, device: str = "auto") -> dict[str, Any]:
    """Returns the arguments of an agent's constructor that depend on the environment and the device.

    Args:
        env: any environment that `train` accepts.
        device: auto (cuda if there is one), cpu, cuda or cuda:<number>.

    Returns:
        `obs_dim`, `action_dim`, `action_range` and `device`.
    """
    return _spec_of(adapt(env, _name(env))).agent_arguments() | {"device": machine.resolve_device(device)}


@checked
def train(
    agent: Agent,
    env: gym.Env | Sequence[gym.Env],
    num_steps: PositiveInt,
    *,
    num_seed_steps: NonNegativeInt = 5000,
    min_buffer_size: NonNegativeInt = 0,
    action_repeat: PositiveInt = 1,
    update_every: PositiveInt = 1,
    updates_per_step: Annotated[float, Gt(0), Le(1000)] = 1.0,
    replay_buffer: Any = None,
    logger: Any = None,
    evaluator: Any = None,
    eval_frequency: PositiveInt = 10_000,
    checkpoint: Callable[[int], Any] | None = None,
    checkpoint_frequency: PositiveInt = 20_000,
    execution: Execution = "auto",
    seed: Seed = 1,
) -> TrainResult:
    """Trains an agent with the training loop of `train.py`.

    Arguments named like a key of config/train.yaml have the same meaning. Schedules restart at step 0 in each call.

    Args:
        agent: continues to learn from its current state.
        env: an environment with observations that can be flattened and a Box or Discrete action space, or several of
            the same shapes, which are stepped together. They stay open. Without a time limit of its own, an
            environment gets a limit of 1000 steps.
        num_steps: environment steps, summed over the environments.
        replay_buffer: stores the transitions; None creates one that holds all of them.
        logger: a logger.Logger, or an object with its `log`, `log_all`, `histograms_due` and `dump`; None logs nothing.
        evaluator: a run.evaluation.evaluator.Evaluator, or an object with its `evaluate(agent, step)`. It is called
            every `eval_frequency` steps, and at the end.
        checkpoint: called with the step at the start, every `checkpoint_frequency` steps, and at the end; for example
            to save the agent.
        seed: seed of the episodes and of the random actions; the agent's own noise is seeded when it is built.

    Raises:
        UserError: if an argument is wrong, or does not fit the others.
        RunError: if an action, observation, reward or loss is not finite, or the environment raises.
    """
    env_list = _wrapped(env, action_repeat)
    envs = make_train_envs(partial(next, iter(env_list)), seed, len(env_list))
    spec = _spec_of(env_list[0])
    _require_fit(agent, spec)
    device = getattr(agent, "device", CPU)
    if replay_buffer is None:
        storage = choose_storage("auto", device, True, frames.nbytes(spec.obs, spec.action_shape, num_steps))
        replay_buffer = STORAGES[storage](spec.obs_shape, spec.action_shape, num_steps, device, seed)
    _require_methods("logger", logger, ("log", "log_all", "histograms_due", "dump"))
    _require_methods("evaluator", evaluator, ("evaluate",))
    chosen, _ = choose_execution(execution, agent, device)
    require_support(agent, replay_buffer)
    set_execution(agent, chosen, device)
    logger = Logger(Path(), {}, log_frequency=0) if logger is None else logger
    plan = Plan(
        num_train_steps=num_steps,
        num_seed_steps=num_seed_steps,
        num_envs=len(env_list),
        action_repeat=action_repeat,
        min_buffer_size=min_buffer_size,
        update_every=update_every,
        updates_per_step=updates_per_step,
        updates_while_seeding=False,
        offline_updates=0,
        eval_frequency=eval_frequency if evaluator is not None else 0,
        checkpoint_frequency=checkpoint_frequency if checkpoint is not None else 0,
    )
    rows_of_batch = 1 if getattr(replay_buffer, "with_replacement", True) else getattr(agent, "batch_size", 1)
    updates_from = max(min_buffer_size, rows_of_batch)
    plan.note_if_no_update(updates_from - replay_buffer.num_added)
    progress, stopping = Progress(plan, updates_from), Stopping(grace_s=math.inf)
    make_evaluator = None if evaluator is None else lambda: evaluator
    evaluations = Evaluations(
        agent, make_evaluator, logger, progress, stopping, background=None, solved_from=None, keep_best=None
    )
    saved_step = -1

    def save_once(is_last: bool) -> None:
        nonlocal saved_step
        if checkpoint is not None and saved_step != progress.step:
            saved_step = progress.step
            checkpoint(saved_step)

    batches: Any = SimpleNamespace(batches=replay_buffer, offline=replay_buffer)
    parts = LoopParts(
        envs, agent, spec.uniform_policy(seed), NStep(1), replay_buffer, batches, may_step_in_thread=False
    )
    Loop(parts, logger, progress, evaluations, stopping, save_once).run()
    return TrainResult(progress.step, progress.episode, progress.last_return, replay_buffer)


@checked
def evaluate(
    agent: Any,
    env: gym.Env,
    episodes: PositiveInt = 10,
    sample: bool = False,
    *,
    action_repeat: PositiveInt = 1,
    seed: Seed = 1,
) -> list[float]:
    """Runs evaluation episodes; training afterwards is the same as without them.

    Args:
        agent: an agent, or a policy alone (agent.policy_file.load_policy).
        env: as for `train`; it stays open.
        sample: sample the actions; otherwise they are greedy.
        seed: seed of the episodes, and of the sampled actions.

    Returns:
        The undiscounted return of each episode.

    Raises:
        UserError: if an argument is wrong, or does not fit the others.
        EnvError: if the environment raises.
    """
    (wrapped,) = _wrapped(env, action_repeat)
    _require_methods("agent", agent, ("act", "train"))
    _require_fit(agent, _spec_of(wrapped))
    evaluator = Evaluator(lambda _: wrapped, seed, episodes, None, max_envs=1, sample=sample)
    return evaluator.evaluate(agent, step=0).returns


class _StaysOpen(gym.Wrapper):
    """Keeps the user's environment open when the wrappers around it are closed."""

    def close(self) -> None: ...


def _wrapped(env: gym.Env | Sequence[gym.Env], action_repeat: int) -> list[gym.Env]:
    """Wraps the user's environments: flat observations, actions in [-1, 1], held for `action_repeat` steps."""
    env_list = [env] if isinstance(env, gym.Env) else list(env)
    wrapped = [adapt(_StaysOpen(each), _name(each), action_repeat) for each in env_list]
    has_same_shapes = all(_spec_of(each) == _spec_of(wrapped[0]) for each in wrapped)
    if not wrapped or len({id(each) for each in env_list}) < len(wrapped) or not has_same_shapes:
        raise UserError(f"env={env_list}: one environment goes here, or several different ones of the same shapes")
    return wrapped


def _name(env: gym.Env) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def _spec_of(env: gym.Env) -> EnvSpec:
    spec = EnvSpec.of(env)
    if spec.obs.image:
        raise UserError(f"env={_name(env)}: its observations are images, which only train.py can learn from")
    return spec


def _require_methods(name: str, value: Any, methods: Sequence[str]) -> None:
    missing = [method for method in methods if value is not None and not hasattr(value, method)]
    if missing:
        raise UserError(f"{name}={value}: it needs {', '.join(missing)}")


def _require_fit(agent: Any, spec: EnvSpec) -> None:
    """Raises UserError if the agent was built for other shapes; an object without these attributes is not checked."""
    if hasattr(agent, "discrete_actions"):
        require_kind(agent, spec, "env", type(agent).__name__)
    for name in ("obs_dim", "action_dim"):
        needed = getattr(spec, name)
        built_for = getattr(agent, name, needed)
        if built_for != needed:
            raise UserError(f"agent: it was made for {name}={built_for}, and the environment has {name}={needed}")
