"""The framework as a library: train, evaluate, save and load an agent, without Hydra and without a run's folder.

>>> env = gymnasium.make("Pendulum-v1")
>>> agent = SACAgent(**shapes(env), critic=..., actor=..., temperature=LearnedTemperature)
>>> train(agent, env, num_steps=10_000)
>>> evaluate(agent, env, episodes=10)
>>> save(agent, "pendulum.pt")

docs/LIBRARY.md is the page.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import torch
from annotated_types import Ge, Gt, Le, Lt

from agent import Agent
from agent.policy import UniformPolicy
from agent.toolkit.priorities import require_support
from envs.adapter import adapt
from envs.processes import make_train_envs
from logger import Logger
from replay.device import STORAGES, choose_storage
from replay.n_step import NStep
from replay_buffer import nbytes
from run import machine
from run.data.buffers import BUFFER_METHODS, GRAPH_METHODS
from run.env_spec import EnvSpec
from run.evaluation.evaluations import Evaluations
from run.evaluation.evaluator import Evaluator
from run.execution import choose_execution, set_execution
from run.loop import Loop
from run.progress import Plan, Progress
from run.saving.agent_file import load, save
from run.stopping import Stopping
from settings.types import Execution, NonNegativeInt, PositiveInt
from settings.validated import checked
from utils import UserError

__all__ = ["Trained", "evaluate", "load", "save", "shapes", "train"]

Seed = Annotated[int, Ge(0), Lt(2**32)]
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Trained:
    """What came of `train`.

    Attributes:
        steps: environment steps, of all environments.
        episodes: finished ones.
        last_return: the mean return of the last evaluation; nan without an evaluator.
        replay_buffer: to go on with.
    """

    steps: int
    episodes: int
    last_return: float
    replay_buffer: Any


@checked
def shapes(env: gym.Env, device: str = "auto") -> dict[str, Any]:
    """What an agent's constructor is told of an environment, and the device.

    Args:
        env: any that `train` can work with.
        device: auto (cuda if there is one), cpu, cuda or cuda:<number>.

    Returns:
        `obs_dim`, `action_dim`, `action_range` and `device`.

    Raises:
        UserError: for spaces that an agent cannot use, or a device that is not there.
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
) -> Trained:
    """Trains an agent, by the loop that `train.py` runs. Arguments called as a key of config/train.yaml mean the same.

    Numbers of the agent that follow a schedule do so from step 0 of each call.

    Args:
        agent: of this project, or any subclass of agent.Agent.
        env: observations that can be flattened, actions in a Box of any bounds; several are stepped together. It stays
            open. Without a time limit of its own it gets one of 1000 steps.
        num_steps: environment steps, summed over the environments.
        replay_buffer: None is one that holds everything.
        logger: logger.Logger, or what has its `log`, `log_all`, `histograms_due` and `dump`; None logs nothing.
        evaluator: run.evaluation.evaluator.Evaluator, or what has its `evaluate(agent, step)`; called every
            `eval_frequency` steps, and at the end.
        checkpoint: called with the step every `checkpoint_frequency` steps, at the start and at the end: to save the
            agent, say.
        seed: of the episodes and the random actions; the agent has its own.

    Returns:
        What came of it.

    Raises:
        UserError: for an argument that does not fit.
        RunError: for what is not finite, or an environment that raises.
    """
    own = _Borrowed.several(env, action_repeat)
    envs = make_train_envs(partial(next, iter(own)), seed, len(own))
    spec = _spec_of(own[0])
    device = getattr(agent, "device", CPU)
    _require_fit(agent, spec)
    if replay_buffer is None:
        replay_buffer = _new_buffer(spec, device, num_steps, seed)
    _require("logger", logger, ("log", "log_all", "histograms_due", "dump"))
    _require("evaluator", evaluator, ("evaluate",))
    chosen, _ = choose_execution(execution, agent, device)
    _require("replay_buffer", replay_buffer, BUFFER_METHODS + (GRAPH_METHODS if chosen.endswith("captured") else ()))
    require_support(agent, replay_buffer)
    set_execution(agent, chosen, device)
    logger = Logger(Path(), {}, log_frequency=0) if logger is None else logger
    plan = Plan(
        num_train_steps=num_steps,
        num_seed_steps=num_seed_steps,
        num_envs=len(own),
        action_repeat=action_repeat,
        min_buffer_size=min_buffer_size,
        update_every=update_every,
        updates_per_step=updates_per_step,
        updates_while_seeding=False,
        offline_updates=0,
        eval_frequency=eval_frequency if evaluator is not None else 0,
        checkpoint_frequency=checkpoint_frequency if checkpoint is not None else 0,
    )
    plan.note_if_no_update(updates_from := max(min_buffer_size, 1))
    progress, stopping = Progress(plan, updates_from), Stopping(grace_s=math.inf)
    evaluations = Evaluations(
        agent, lambda: evaluator, logger, progress, stopping, background=None, solved_from=None, keep_best=None
    )
    Loop(
        plan,
        envs,
        may_step_in_thread=False,
        agent=agent,
        seed_policy=UniformPolicy(spec.action_dim, (-1.0, 1.0), seed),
        n_step=NStep(1),
        replay_buffer=replay_buffer,
        data=_Collected(replay_buffer),
        logger=logger,
        progress=progress,
        evaluations=evaluations if evaluator is not None else _NoEvaluations(),
        stopping=stopping,
        save=_Once(checkpoint, progress),
    ).run()
    return Trained(progress.step, progress.episode, progress.last_return, replay_buffer)


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
    """Plays episodes, and changes nothing of the agent: no generator that training draws from either.

    Args:
        agent: or a policy alone (agent.policy_file.load_policy).
        env: as for `train`; it stays open.
        sample: whether actions are sampled; otherwise they are greedy.
        seed: of the episodes, and of the sampled actions.

    Returns:
        The episodes' returns.

    Raises:
        UserError: for an argument that does not fit.
        EnvError: for an environment that raises.
    """
    (own,) = _Borrowed.several(env, action_repeat)
    _require("agent", agent, ("act", "train"))
    _require_fit(agent, _spec_of(own))
    return Evaluator(lambda _: own, seed, episodes, None, max_envs=1, sample=sample).evaluate(agent, step=0).returns


class _Borrowed(gym.Wrapper):
    """The caller's environment, which stays open when those around it are closed."""

    @staticmethod
    def several(env: gym.Env | Sequence[gym.Env], action_repeat: int) -> list[gym.Env]:
        """One or several as an agent sees them."""
        given = [env] if isinstance(env, gym.Env) else list(env)
        own = [adapt(_Borrowed(one), _name(one), action_repeat) for one in given]
        alike = all(_spec_of(one) == _spec_of(own[0]) for one in own)
        if not own or len({id(one) for one in given}) < len(own) or not alike:
            raise UserError(f"env={given}: one environment goes here, or several different ones of the same shapes")
        return own

    def close(self) -> None:
        """Not ours to do."""


class _NoEvaluations:
    def evaluate(self, is_last: bool = False) -> None: ...

    def look(self) -> None: ...

    def finish(self) -> bool:
        return True


class _Collected:
    """Updates draw from what was collected."""

    def __init__(self, replay_buffer: Any):
        self.batches = self.offline = replay_buffer


class _Once:
    """Calls the caller's checkpoint, once a step."""

    def __init__(self, checkpoint: Callable[[int], Any] | None, progress: Progress):
        self._checkpoint = checkpoint
        self._progress = progress
        self._last_step = -1

    def __call__(self, is_last: bool) -> None:
        if self._checkpoint is not None and self._last_step != self._progress.step:
            self._last_step = self._progress.step
            self._checkpoint(self._last_step)


def _name(env: gym.Env) -> str:
    """For messages."""
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def _spec_of(env: gym.Env) -> EnvSpec:
    spec = EnvSpec.of(env)
    if spec.is_image:
        raise UserError(f"env={_name(env)}: its observations are images, which train.py learns from, and not this call")
    return spec


def _new_buffer(spec: EnvSpec, device: torch.device, capacity: int, seed: int) -> Any:
    storage = choose_storage("auto", device, True, capacity, nbytes(*spec, capacity))
    return STORAGES[storage](*spec, capacity, device, seed)


def _require(name: str, given: Any, methods: Sequence[str]) -> None:
    missing = [method for method in methods if given is not None and not hasattr(given, method)]
    if missing:
        raise UserError(f"{name}={given}: it needs {', '.join(missing)}")


def _require_fit(agent: Any, spec: EnvSpec) -> None:
    for name in ("obs_dim", "action_dim"):
        wanted = getattr(spec, name)
        has = getattr(agent, name, wanted)
        if has != wanted:
            raise UserError(f"agent: it was made for {name}={has}, and the environment has {name}={wanted}")
