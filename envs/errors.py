"""Somebody's environment, watched: what goes wrong in it is told of as its fault."""

from typing import Any

import gymnasium as gym
import numpy as np

from utils import EnvError, RunError, one_line


class Watched(gym.Wrapper):
    """Turns what an environment raises, and an observation of another shape than it declared, into an EnvError.

    Args:
        env: with flat observations.
        name: of the task, for the message.
    """

    def __init__(self, env: gym.Env, name: str):
        super().__init__(env)
        self._name = name
        self._shape = env.observation_space.shape

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        try:
            obs, info = self.env.reset(seed=seed, options=options)
        except (RunError, OSError):
            raise
        except Exception as error:
            raise self._fault("reset", error) from error
        self._require_shape("reset", obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
            reward = float(reward)
        except (RunError, OSError):
            raise
        except Exception as error:
            raise self._fault("step", error) from error
        self._require_shape("step", obs)
        return obs, reward, terminated, truncated, info

    def _require_shape(self, where: str, obs: np.ndarray) -> None:
        if obs.shape != self._shape:
            raise EnvError(
                f"env={self._name}: {where} gave an observation of shape {obs.shape} where its observation_space, "
                f"made flat, has {self._shape}"
            )

    def _fault(self, where: str, error: Exception) -> EnvError:
        return EnvError(f"env={self._name}: its {where} raised {type(error).__name__}: {one_line(error)}")
