"""Wrappers for any Gymnasium environment: actions held for several steps, and actions as policies give them."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TransformAction

STATE = "internal_state"  # key of `info`: the physics state before the action
UNBOUNDED = 1e9  # larger bounds count as none: `lqr` has 1e10, others infinity


class ActionRepeat(gym.Wrapper):
    """Holds each action for `repeat` steps and sums their rewards; stops when the episode ends.

    `info` is the last step's, but for `internal_state`, the state before the action, which is the first step's.
    `info["repeats"]` is the number of steps taken, including those of another ActionRepeat inside.
    """

    def __init__(self, env: gym.Env, repeat: int):
        super().__init__(env)
        self.repeat = repeat

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total, steps, before = 0.0, 0, {}
        for index in range(self.repeat):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            steps += info.get("repeats", 1)
            if index == 0 and STATE in info:
                before = {STATE: info[STATE]}
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, {**info, **before, "repeats": steps}


class ActionMap:
    """An environment's own action space, and the linear map to it from a policy's actions: `low + (a + shift) * half`.

    A policy gives numbers (|A|,) in [-1, 1] for a Box and one integer (1,), counted from 0, for a Discrete.

    Args:
        space: the action space; a missing bound of a Box counts as -1 or 1.

    Attributes:
        low, high: the bounds, float64, in the shape of the space.
        policy_space: the space of a policy's actions.
    """

    policy_space: gym.spaces.Box | gym.spaces.MultiDiscrete

    def __init__(self, space: gym.spaces.Box | gym.spaces.Discrete):
        self.is_discrete = isinstance(space, gym.spaces.Discrete)
        if isinstance(space, gym.spaces.Discrete):
            self.low, self.half, self.shift = np.asarray(space.start, np.float64), np.ones(()), 0.0
            self.high = np.asarray(self.low + space.n - 1)
            self.policy_space = gym.spaces.MultiDiscrete([int(space.n)])
        else:
            self.low = np.where(space.low <= -UNBOUNDED, -1.0, space.low).astype(np.float64)
            self.high = np.where(space.high >= UNBOUNDED, 1.0, space.high).astype(np.float64)
            self.half, self.shift = (self.high - self.low) / 2, 1.0
            self.policy_space = gym.spaces.Box(-1.0, 1.0, (int(np.prod(space.shape)),), np.float32)
        if not (self.low < self.high).all():
            raise ValueError(f"its actions, {space}, leave no choice: infinite bounds count as -1 and 1")
        self.space, self.dtype = space, space.dtype

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """Maps a policy's action, or actions (N, |A|), to the environment's own."""
        shape = (*action.shape[:-1], *self.low.shape)
        scaled = self.low + (np.asarray(action, np.float64).reshape(shape) + self.shift) * self.half
        scaled = scaled.clip(self.low, self.high)  # it may be one rounding past a bound
        return (np.rint(scaled) if self.dtype.kind in "iu" else scaled).astype(self.dtype)

    def scaled(self, own_actions: np.ndarray) -> np.ndarray:
        """Maps the environment's own actions (T, *shape) to a policy's, (T, |A|) or (T, 1), float64."""
        return ((np.asarray(own_actions, np.float64) - self.low) / self.half - self.shift).reshape(len(own_actions), -1)

    def inverse(self, own_actions: np.ndarray) -> np.ndarray:
        """As `scaled`, within a policy's bounds and in float32, as rows of a replay buffer have actions."""
        last = self.high - self.low if self.is_discrete else 1.0
        return self.scaled(own_actions).clip(-self.shift, last).astype(np.float32)


class RescaledActions(TransformAction):
    """Lets a policy act in [-1, 1], or by integers; `action_map` has the errors of ActionMap."""

    def __init__(self, env: gym.Env):
        space = env.action_space
        assert isinstance(space, gym.spaces.Box | gym.spaces.Discrete)
        self.action_map = ActionMap(space)
        super().__init__(env, self.action_map.to_env, self.action_map.policy_space)
