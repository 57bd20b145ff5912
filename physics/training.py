"""Training in worlds side by side, in place of envs.episodes.make_vector_env."""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envs.episodes import TRAIN_STREAM, episode_seed, first_cut
from physics.worlds import Worlds


class TrainingWorlds(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """A run's vector environment, whose episodes and states equal those of as many SeededEpisodes."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012  # as Gymnasium has it

    def __init__(self, worlds: Worlds, run_seed: int, first_steps: int = 0):
        self._worlds, self._run_seed, self.num_envs = worlds, run_seed, worlds.count
        self.single_observation_space, self.single_action_space = worlds.spaces
        self.observation_space, self.action_space = (batch_space(space, self.num_envs) for space in worlds.spaces)
        self._obs = np.zeros((self.num_envs, *worlds.spaces[0].shape), np.float32)
        self._episodes = [0] * self.num_envs
        self._cuts = [first_cut(run_seed, index, first_steps) for index in range(self.num_envs) if first_steps]
        self._actions: list[np.ndarray] = []  # all worlds', since the oldest current episode began; (N, |A|) each
        self._begun = [0] * self.num_envs  # by world: where in this list its episode begins

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins the next episode of the worlds in `options["reset_mask"]`, or restores `options["states"]` of all."""
        options = options or {}
        self._obs = self._obs.copy()
        if "states" in options:
            self._restore(options["states"])
        else:
            for index in np.flatnonzero(options.get("reset_mask", np.ones(self.num_envs, bool))).tolist():
                self._begin(index, self._episodes[index] + 1)
        return self._obs, {}

    def _begin(self, index: int, episode: int) -> None:
        self._episodes[index] = episode
        self._obs[index] = self._worlds.reset(index, episode_seed(self._run_seed, TRAIN_STREAM, index, episode))
        self._begun[index] = len(self._actions)
        unneeded = min(self._begun)
        del self._actions[:unneeded]
        self._begun = [begin - unneeded for begin in self._begun]

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        self._actions.append(np.array(actions))
        self._obs, rewards, terminated, truncated, repeats = self._worlds.step(actions)
        for index, cut_after in enumerate(self._cuts):
            num_steps = (len(self._actions) - self._begun[index]) * repeats[index]
            if self._episodes[index] == 1 and num_steps >= cut_after:
                truncated[index] = not terminated[index]
        return self._obs, rewards, terminated, truncated, {"repeats": repeats}

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Returns the worlds' `state_dict`s, or their `action_map`."""
        if name == "action_map":
            return (self._worlds.action_map,) * self.num_envs
        assert name == "state_dict", name
        return tuple(
            {"episode": episode, "actions": [actions[index].tolist() for actions in self._actions[begin:]]}
            for index, (episode, begin) in enumerate(zip(self._episodes, self._begun, strict=True))
        )

    def _restore(self, states: Any) -> None:
        """Restarts the episodes and repeats their actions, aligned so that all worlds' last actions coincide."""
        self._actions = []
        for index, state in enumerate(states):
            self._begin(index, state["episode"])
        count = max(len(state["actions"]) for state in states)
        self._begun = [count - len(state["actions"]) for state in states]
        for number in range(count):
            which = [index for index, begin in enumerate(self._begun) if begin <= number]
            actions = np.zeros((self.num_envs, *self._worlds.spaces[1].shape), np.float32)
            actions[which] = [states[index]["actions"][number - self._begun[index]] for index in which]
            self._actions.append(actions)
            self._obs[which] = self._worlds.step(actions[which], which).obs

    def close_extras(self, **kwargs: Any) -> None:
        self._worlds.close()
