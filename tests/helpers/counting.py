"""A simulator whose every number is known, in each of Gymnasium's autoreset modes, with arrays or tensors."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

LENGTHS = (2, 3, 5, 4)  # each episode of world i has LENGTHS[i % 4] steps
LOW, HIGH = -1.0, 3.0  # bounds of actions


def reward_of(world: int, episode: int, taken: int) -> float:
    return world + 10.0 * episode + 100.0 * taken


def terminates(world: int, episode: int) -> bool:
    """Returns whether an episode terminates; the others are truncated."""
    return (world + episode) % 2 == 0


class CountingVec(VectorEnv):
    """Worlds that observe their number and their episode's (a pair), and its steps so far; rewards encode all three.

    Args:
        mode: a value of AutoresetMode; "" for none.
        tensors: whether its data are tensors instead of arrays; each step overwrites the last observations.
        final: whether it returns episodes' last observations in the mode SAME_STEP.
    """

    def __init__(self, num_envs: int, mode: str = "NextStep", tensors: bool = False, final: bool = True):
        self.num_envs, self._tensors, self._final = num_envs, tensors, final
        self.metadata = {"autoreset_mode": AutoresetMode(mode)} if mode else {}
        steps, names = gym.spaces.Box(0, np.inf, (), np.float32), gym.spaces.Box(0, np.inf, (1, 2), np.float64)
        self.single_observation_space = gym.spaces.Dict({"steps": steps, "names": names})
        self.single_action_space = gym.spaces.Box(LOW, HIGH, (2, 1), np.float32)
        self.lengths = np.array([LENGTHS[i % 4] for i in range(num_envs)])
        self._memory: dict[str, Any] = {}
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        which = (options or {}).get("reset_mask")
        if which is None:
            self.seeds.append(seed)
            self.episode, self.taken, self.over = (np.full(self.num_envs, first) for first in (1, 0, False))
        else:
            assert self.metadata["autoreset_mode"] is AutoresetMode.DISABLED
            self._begin(which)
        return self._obs(), {}

    def _begin(self, which: np.ndarray) -> None:
        self.episode[which] += 1
        self.taken[which] = 0
        self.over[which] = False

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        assert isinstance(actions, torch.Tensor) == self._tensors and tuple(actions.shape) == (self.num_envs, 2, 1)
        self.actions = np.asarray(actions).copy()
        assert not ((self.actions < LOW) | (self.actions > HIGH)).any()
        mode, ignored = self.metadata["autoreset_mode"], self.over.copy()
        assert mode is AutoresetMode.NEXT_STEP or not ignored.any()
        self._begin(ignored)
        self.taken += ~ignored
        worlds = range(self.num_envs)
        rewards = np.array([reward_of(i, self.episode[i], self.taken[i]) for i in worlds]) * ~ignored
        done = (self.taken == self.lengths) & ~ignored
        terminated = done & [terminates(i, self.episode[i]) for i in worlds]
        info: dict[str, Any] = {"is_success": self._data(terminated), "speed": self._data(self.taken.copy())}
        info["obs"] = self._data(rewards)  # a key that a simulator's saved state has too
        if mode is AutoresetMode.SAME_STEP and done.any():
            if self._final:
                info["final_obs"] = self._last(done)
            info |= {"final_info": info.copy(), "speed": self._data(self.taken * ~done)}  # 0 in new episodes
            self._begin(done)
        else:
            self.over = done
        return self._obs(), self._data(rewards), self._data(terminated), self._data(done & ~terminated), info

    def _last(self, done: np.ndarray) -> Any:
        obs = self._numbers()
        if self._tensors:  # one batch, as simulators on a GPU return it
            return {key: torch.tensor(value) for key, value in obs.items()}
        return np.array([{key: value[i] for key, value in obs.items()} if done[i] else None for i in range(len(done))])

    def _numbers(self) -> dict[str, np.ndarray]:
        names = np.stack([np.arange(self.num_envs), self.episode], axis=1).astype(np.float64)
        return {"steps": self.taken.astype(np.float32), "names": names[:, None]}

    def _obs(self) -> Any:
        for key, value in self._numbers().items():
            self._memory.setdefault(key, self._data(value.copy()))[:] = self._data(value)
        return self._memory

    def _data(self, values: np.ndarray) -> Any:
        return torch.tensor(values) if self._tensors else values


class SavedCountingVec(CountingVec):
    """Its state can be saved and loaded."""

    def state_dict(self) -> dict[str, Any]:
        return {"arrays": (self.episode, self.taken), "over": torch.tensor(self.over), "worlds": np.int64(4)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episode, self.taken = (array.copy() for array in state["arrays"])
        self.over, worlds = state["over"].numpy().copy(), state["worlds"]
        assert worlds == 4


gym.register("Counting-v0", vector_entry_point=CountingVec)
gym.register("SavedCounting-v0", vector_entry_point=SavedCountingVec)
gym.register("NoModeCounting-v0", vector_entry_point=CountingVec, kwargs={"mode": ""})


class OneCounting(gym.Env):
    """The first world alone, as an environment of Gymnasium."""

    def __init__(self) -> None:
        self._vec = CountingVec(1, "Disabled")
        self.observation_space, self.action_space = self._vec.single_observation_space, self._vec.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._first(self._vec.reset()[0]), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self._vec.step(action[None])
        numbers = {"is_success": info["is_success"][0], "speed": info["speed"]}  # a numpy bool, and an array of one
        return self._first(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]), numbers

    @staticmethod
    def _first(obs: Any) -> Any:
        return {key: value[0].copy() for key, value in obs.items()}


gym.register("BothCounting-v0", OneCounting, vector_entry_point=SavedCountingVec)
