"""Tasks of the DeepMind Control Suite, built with the user's arguments. Imports dm_control."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
from dm_control import suite
from dm_control.rl.control import Environment, PhysicsError

from envs import arguments
from envs.flat import where
from envs.names import SUITE_TASKS
from utils import RunError, UserError, one_line


class Simulated(gym.Wrapper):
    """Turns physics that have diverged into a RunError."""

    def __init__(self, env: gym.Env, name: str):
        super().__init__(env)
        self._name = name

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        try:
            return self.env.step(action)
        except PhysicsError as error:
            raise RunError(f"env={self._name}: {one_line(error)}") from None


def build(make: Callable[..., gym.Env], name: str, kwargs: Mapping[str, Any], ours: dict[str, Any]) -> gym.Env:
    """Builds a task of the suite.

    Args:
        make: dmc2gym.load or dmc2gym.make.
        name: of the task.
        kwargs: the user's arguments for the task and its environment.
        ours: the other arguments of `make`.

    Raises:
        UserError: for an argument that neither takes, or where the task needs OpenGL and there is none.
    """
    given = _arguments(name, kwargs)
    try:
        return Simulated(make(*SUITE_TASKS[name], **given, **ours), name)
    except RuntimeError as error:  # quadruped_escape renders its terrain while it is built
        raise UserError(f"env={name}: it cannot be built here ({error}); it may need OpenGL") from error
    except (TypeError, ValueError) as error:
        if not kwargs:
            raise
        raise UserError(f"env={name}: it cannot be built with {_shown(kwargs)} ({where(error)})") from error


def _arguments(name: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A suite task's own arguments, and those of the environment that each of them builds."""
    domain, task = SUITE_TASKS[name]
    of_task = arguments.known(getattr(suite, domain).SUITE[task], ("random", "environment_kwargs"))
    of_environment = arguments.known(Environment, ("physics", "task", "time_limit", "flat_observation"))
    given = arguments.fitted(name, of_environment | of_task, kwargs)
    return {
        "task_kwargs": {key: value for key, value in given.items() if key in of_task},
        "environment_kwargs": {key: value for key, value in given.items() if key not in of_task},
    }


def _shown(kwargs: Mapping[str, Any]) -> str:
    return ", ".join(f"env_kwargs.{key}={value}" for key, value in kwargs.items())
