"""N worlds of one task of the suite, stepped together."""

import contextlib
import math
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import repeat
from statistics import median
from typing import Any, NamedTuple

import gymnasium as gym
import mujoco
import numpy as np

from physics.task import Task
from utils import RunError

TIMED = 20  # newest steps by one thread whose times count
TIMED_EVERY = 50  # consecutive steps by several threads before one by one thread: contacts change its time
MIN_THREAD_WORK_S = 0.0001  # for which a thread is woken
MIN_THREADED_STEP_S = 0.00003  # worlds with shorter steps gain nothing from threads, which mostly wait for the GIL
LIMIT = "_max_episode_steps"  # attribute of Gymnasium's TimeLimit: decisions in an episode


class SuiteSimulation:
    """Takes dm_control's model, data and task out of an environment, whose `reset` fills them with a start.

    Args:
        env: the task with vector observations, as `envs.make.make_env` makes it, of which only `reset` and `render`
            are called. The subclass's `close` closes it.
        make_task: the class of its task (see physics.tasks).
    """

    def __init__(self, env: gym.Env, make_task: type[Task]):
        self._env = env
        self.action_map = env.get_wrapper_attr("action_map")
        self._repeat: int = env.get_wrapper_attr("repeat")
        self._host = env.unwrapped._env  # type: ignore[attr-defined]  # dm_control's environment
        decisions = env.get_wrapper_attr(LIMIT) if env.has_wrapper_attr(LIMIT) else sys.maxsize
        self._limit: int = min(math.ceil(min(self._host._step_limit, sys.maxsize)), decisions * self._repeat)
        self._model, self._data = self._host.physics.model.ptr, self._host.physics.data.ptr
        self._sub_steps: int = self._host._n_sub_steps
        self._runge_kutta = self._model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
        self._task = make_task(self._model, self._host.task)


class Steps(NamedTuple):
    """The results of one decision in each of n worlds."""

    obs: np.ndarray  # (n, obs_dim), float32
    rewards: np.ndarray  # (n,), float64, each summed over the steps for which its action was held
    terminated: np.ndarray  # (n,), bool
    truncated: np.ndarray
    repeats: np.ndarray  # (n,), int64, the steps for which each action was held


class State:
    """Gathers MjData's arrays, by MuJoCo's names, with one row per chosen world: `state.qpos` is (N, nq).

    An array is gathered at its first access after a step; the array of a single world is a view.
    """

    def __init__(self, data: Sequence[Any]):
        self._data = data
        self._views: dict[str, list[np.ndarray]] = {}
        self._which: Sequence[int] = range(len(data))

    def choose(self, which: Sequence[int]) -> None:
        """Chooses the worlds whose rows are gathered, and drops the arrays gathered before."""
        if len(which) > 1 or which != self._which:
            self._which = which
            for name in self._views:
                self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._views:
            self._views[name] = [getattr(data, name)[None] for data in self._data]
        chosen = [self._views[name][index] for index in self._which]
        rows = self.__dict__[name] = chosen[0] if len(chosen) == 1 else np.concatenate(chosen)
        return rows


class Worlds(SuiteSimulation):
    """Steps N worlds of one suite task. Each world equals a separate environment, bit for bit.

    The environment that was given starts the episodes of all worlds and renders frames.
    """

    def __init__(self, env: gym.Env, make_task: type[Task], name: str, count: int, threads: int = 1):
        super().__init__(env, make_task)
        self._name, self.count, self._threads = name, count, min(threads, count)
        self.spaces: tuple[Any, Any] = (env.observation_space, env.action_space)  # of one world
        self.unwrapped, self.metadata = env.unwrapped, env.metadata
        self._worlds = [mujoco.MjData(self._model) for _ in range(count)]
        fields = self._task.model_fields  # written to a thread's model before it steps a world
        self._models = [self._model, *(copy(self._model) if fields else self._model for _ in range(1, self._threads))]
        self._fields = [[getattr(model, name) for name in fields] for model in self._models]
        self._own_fields: list[list[np.ndarray]] = [[] for _ in range(count)]  # by world
        self._state = State(self._worlds)
        self._controls = [data.ctrl for data in self._worlds]
        self._warnings = State([data.warning for data in self._worlds])
        self._steps = [0] * count  # by world: steps of the current episode
        self._in_env: int | None = None  # the world whose state the environment has
        self._pool = ThreadPoolExecutor(self._threads - 1) if self._threads > 1 else None
        self._world_s: deque[float] = deque(maxlen=TIMED)  # time per world in steps by one thread
        self._untimed = 0  # steps since the last one by one thread

    def reset(self, index: int, seed: int) -> np.ndarray:
        """Begins an episode of one world with dm_control's own start; returns the observation, (obs_dim,), float32."""
        obs, _ = self._env.reset(seed=seed)
        self._own_fields[index] = [field.copy() for field in self._fields[0]]
        mujoco.mj_copyData(self._worlds[index], self._model, self._data)
        self._worlds[index].warning.number[:] = 0
        self._steps[index] = 0
        self._in_env = index
        return obs

    def step(self, actions: np.ndarray, which: Sequence[int] | None = None) -> Steps:
        """Takes one decision in each world, or in those of `which`.

        Args:
            actions: (n, action_dim), in [-1, 1]; each is held for the environment's `action_repeat` steps.
            which: the indices of n worlds, ascending; None is all of them.

        Raises:
            RunError: if the simulation diverges.
        """
        chosen = range(self.count) if which is None else which
        for index, control in zip(chosen, self.action_map.to_env(actions), strict=True):
            self._controls[index][:] = control
        self._in_env = None
        held = [min(self._repeat, self._limit - self._steps[index]) for index in chosen]
        rewards, least = np.zeros(len(held)), min(held)
        for number in range(max(held)):
            everyone = number < least
            self._advance(chosen if everyone else [chosen[row] for row, count in enumerate(held) if number < count])
            self._state.choose(chosen)
            reward = self._task.reward(self._state)
            rewards += reward if everyone else np.where(np.array(held) > number, reward, 0.0)
        self._warnings.choose(chosen)
        if self._warnings.number.any():
            names = list(mujoco.mjtWarning.__members__)
            raised = ", ".join(names[kind] for kind in np.flatnonzero(self._warnings.number.any(0)))
            raise RunError(f"env={self._name}: Physics state is invalid. Warning(s) raised: {raised}")
        for index, count in zip(chosen, held, strict=True):
            self._steps[index] += count
        obs = np.concatenate(self._task.observation(self._state), axis=1, dtype=np.float32, casting="same_kind")
        truncated = np.array([self._steps[index] == self._limit for index in chosen])
        return Steps(obs, rewards, np.zeros(len(held), bool), truncated, np.array(held))

    def outcomes(self, actions: np.ndarray, which: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """Takes a `step`; returns an iterator over its results, by world (see run.evaluation.evaluator.SerialEnvs)."""
        obs, *columns = self.step(actions, which)
        return zip(obs, *(column.tolist() for column in columns), repeat(()))

    def _advance(self, which: Sequence[int]) -> None:
        """Takes one control step in each of these worlds."""
        if self._pool is None or (threads := self._count_threads(len(which))) == 1:
            began_s, self._untimed = time.perf_counter(), 0
            self._advance_some(which)
            self._world_s.append((time.perf_counter() - began_s) / len(which))
        else:
            self._untimed += 1
            left = deque(which)  # shared, because a thread on a busy core steps fewer worlds
            others = [self._pool.submit(self._advance_some, _take_from(left), k) for k in range(1, threads)]
            self._advance_some(_take_from(left))
            for other in others:
                other.result()

    def _count_threads(self, count: int) -> int:
        """Returns the number of threads that should step `count` worlds."""
        if len(self._world_s) < TIMED or self._untimed == TIMED_EVERY:
            return 1
        world_s = median(self._world_s)
        if world_s < MIN_THREADED_STEP_S:
            return 1
        return min(self._threads, max(1, int(count * world_s / MIN_THREAD_WORK_S)))

    def _advance_some(self, which: Iterable[int], thread: int = 0) -> None:
        """Steps as dm_control's `legacy_step`: values that depend on position or velocity are the new state's."""
        model, count, runge_kutta = self._models[thread], self._sub_steps, self._runge_kutta
        for index in which:
            data = self._worlds[index]
            self._write(index, thread)
            if runge_kutta:
                mujoco.mj_step(model, data, count)
            else:
                mujoco.mj_step2(model, data)
                if count > 1:
                    mujoco.mj_step(model, data, count - 1)
            mujoco.mj_step1(model, data)

    def _write(self, index: int, thread: int = 0) -> None:
        for field, values in zip(self._fields[thread], self._own_fields[index], strict=True):
            field[:] = values

    def _give(self, index: int) -> None:
        """Copies a world's state to the environment."""
        self._write(index)
        mujoco.mj_copyData(self._data, self._model, self._worlds[index])

    def render(self) -> Any:
        """Returns a frame of the first world, drawn by dm_control, if the environment was made to render."""
        if self._in_env != 0:
            self._give(0)
            self._host.task.after_step(self._host.physics)  # colours by reward
            self._in_env = 0
        return self._env.render()

    def close(self) -> None:
        """Ends the threads and closes the environment."""
        if self._pool is not None:
            self._pool.shutdown()
        self._env.close()


def _take_from(left: deque[int]) -> Iterator[int]:
    """Takes items from the front until none is left; other threads may take from it too."""
    with contextlib.suppress(IndexError):
        while True:
            yield left.popleft()
