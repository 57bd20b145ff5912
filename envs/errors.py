"""Reports the exceptions of a user's environment as errors of that environment."""

import traceback
from typing import Any

import gymnasium as gym
import numpy as np

from utils import EnvError, RunError, one_line


class ReportErrors(gym.Wrapper):
    """Raises EnvError for an exception in an environment, and for an observation of an undeclared shape.

    Args:
        env: an environment with flat observations or images.
        name: the task, for messages.
    """

    def __init__(self, env: gym.Env, name: str):
        super().__init__(env)
        self._name = name
        self._shape = env.observation_space.shape

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        try:
            obs, info = self.env.reset(seed=seed, options=options)
        except (RunError, OSError):
            raise
        except Exception as error:
            raise self._env_error("reset", error) from error
        self._require_shape("reset", obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
            reward = float(reward)
        except (RunError, OSError):
            raise
        except Exception as error:
            raise self._env_error("step", error) from error
        self._require_shape("step", obs)
        return obs, reward, terminated, truncated, info

    def _require_shape(self, method: str, obs: np.ndarray) -> None:
        if obs.shape != self._shape:
            raise EnvError(
                f"env={self._name}: {method} gave an observation of shape {obs.shape} where its observation_space, "
                f"made flat, has {self._shape}"
            )

    def _env_error(self, method: str, error: Exception) -> EnvError:
        return EnvError(f"env={self._name}: its {method} raised {type(error).__name__}: {one_line(error)}")


def error_with_place(error: Exception) -> str:
    """Formats an exception and the line of code that raised it as one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.filename}:{frame.lineno}: {one_line(error)}"
