"""Episodes as they are played, kept for a data set."""

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np


@dataclass
class Recording:
    """One episode of T decisions.

    Attributes:
        seed: of its reset.
        obs: T + 1 of (obs_dim,), float32, flat as the policy sees them.
        actions: T, in the environment's own shape and bounds.
        rewards: T, each summed over the steps that its action was held for.
        terminations, truncations: T each.
    """

    seed: int | None
    obs: list[np.ndarray]
    actions: list[np.ndarray] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminations: list[bool] = field(default_factory=list)
    truncations: list[bool] = field(default_factory=list)


class Recorder(gym.Wrapper):
    """Adds the episodes of an environment that acts in [-1, 1] to a list, in the order in which they begin.

    Args:
        env: the environment.
        episodes: the list, which several environments may share.
    """

    def __init__(self, env: gym.Env, episodes: list[Recording]):
        super().__init__(env)
        self._episodes = episodes
        self._to_own = env.get_wrapper_attr("own_actions").of
        self._recording: Recording

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._recording = Recording(seed, [np.array(obs)])
        self._episodes.append(self._recording)
        return obs, info

    def step(self, action: np.ndarray) -> tuple[Any, Any, bool, bool, dict]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        kept = self._recording
        kept.obs.append(np.array(obs))
        kept.actions.append(self._to_own(action))
        kept.rewards.append(float(reward))
        kept.terminations.append(bool(terminated))
        kept.truncations.append(bool(truncated))
        return obs, reward, terminated, truncated, info
