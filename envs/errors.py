"""Reports exceptions and exits of a user's environment as its errors."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from os import _exit
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np

from utils import EnvError, RunError, one_line

RETURNS = {"reset": "obs, info", "step": "obs, reward, terminated, truncated, info"}
FAULTS = (Exception, SystemExit)  # of a user's code; an uncaught SystemExit could end the run with exit code 0


@contextmanager
def exit_reported() -> Iterator[None]:
    """Makes `os._exit` raise SystemExit inside the block; a user's code could otherwise end the run without a message.

    The project's own calls are not affected: they use `_exit` as it was imported from `os` before.
    """
    run_process = os.getpid()

    def raise_exit(status: int = 0) -> NoReturn:
        if os.getpid() != run_process:  # a process that the user's code forked
            _exit(status)
        raise SystemExit(status)

    os._exit = raise_exit
    try:
        yield
    finally:
        os._exit = _exit


@contextmanager
def reporting(name: str, method: str) -> Iterator[None]:
    """Turns an exception of a user's environment in the block into an EnvError that names the task and the method."""
    try:
        with exit_reported():
            yield
    except RunError:
        raise
    except FAULTS as error:
        hint = f" (Gymnasium's {method} returns {RETURNS[method]})" if "to unpack" in str(error) else ""
        raise EnvError(f"env={name}: its {method} raised {type(error).__name__}: {one_line(error)}{hint}") from error


class ReportErrors(gym.Wrapper):
    """Raises EnvError for an exception, an observation of an undeclared shape, and a flag that is no boolean.

    Args:
        env: an environment with flat observations or images.
        name: the task, for messages.
    """

    def __init__(self, env: gym.Env, name: str):
        super().__init__(env)
        self._name = name
        self._shape = env.observation_space.shape

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        with reporting(self._name, "reset"):
            obs, info = self.env.reset(seed=seed, options=options)
        self._require_shape("reset", obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with reporting(self._name, "step"):
            obs, reward, terminated, truncated, info = self.env.step(action)
            reward = float(reward)
        self._require_shape("step", obs)
        if type(terminated) is not bool or type(truncated) is not bool:
            terminated, truncated = self._flag("terminated", terminated), self._flag("truncated", truncated)
        return obs, reward, terminated, truncated, info

    def render(self) -> Any:
        with exit_reported():
            return self.env.render()

    def close(self) -> None:
        with reporting(self._name, "close"):
            self.env.close()

    def _flag(self, name: str, value: Any) -> bool:
        """Converts a boolean or an integer, also as an array of one; anything else, such as "False", is a mistake."""
        if isinstance(value, bool | np.bool_):  # MuJoCo's, in every step
            return bool(value)
        if np.size(value) != 1 or np.asarray(value).dtype.kind not in "biu":
            raise EnvError(f"env={self._name}: step gave {name}={value!r}; True or False is needed")
        return bool(value)

    def _require_shape(self, method: str, obs: np.ndarray) -> None:
        if obs.shape != self._shape:
            raise EnvError(
                f"env={self._name}: {method} gave an observation of shape {obs.shape} where its observation_space, "
                f"made flat, has {self._shape}"
            )


def error_with_place(error: BaseException) -> str:
    """Formats an exception and the line of code that raised it as one line."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = next(frame for frame in reversed(frames) if frame.filename != __file__)  # not exit_reported's own frame
    return f"{type(error).__name__} in {frame.filename}:{frame.lineno}: {one_line(error)}"
