"""What engines take from dm_control's environment."""

import math
import sys

import gymnasium as gym
import mujoco

from physics.task import Task

LIMIT = "_max_episode_steps"  # attribute of Gymnasium's TimeLimit: decisions in an episode


class SuiteSimulation:
    """Takes dm_control's model, data and task out of an environment, whose `reset` fills them with a start.

    Args:
        env: the task with vector observations, as `envs.make.make_env` makes it; the engine's `close` closes it.
        make_task: the class of its task (see physics.tasks).

    Attributes:
        own_actions: the map to the task's own actions (see dmc2gym.wrappers.ActionMap).
    """

    def __init__(self, env: gym.Env, make_task: type[Task]):
        self._env = env
        self.own_actions = env.get_wrapper_attr("own_actions")
        self._repeat: int = env.get_wrapper_attr("repeat")
        self._host = env.unwrapped._env  # type: ignore[attr-defined]  # dm_control's environment
        decisions = env.get_wrapper_attr(LIMIT) if env.has_wrapper_attr(LIMIT) else sys.maxsize
        self._limit: int = min(math.ceil(min(self._host._step_limit, sys.maxsize)), decisions * self._repeat)
        self._model, self._data = self._host.physics.model.ptr, self._host.physics.data.ptr
        self._sub_steps: int = self._host._n_sub_steps
        self._runge_kutta = self._model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
        self._task = make_task(self._model, self._host.task)
