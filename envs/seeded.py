"""Training episodes, each a function of its seed and the actions: exact to restore at any step."""

from typing import Any

import gymnasium as gym
import numpy as np

# Streams of randomness: what environments draw the episodes of training and of evaluation from, and what the noise of
# sampled actions in evaluations comes from.
TRAIN_STREAM, EVAL_STREAM, EVAL_ACTIONS_STREAM = 0, 1, 2


def episode_seed(run_seed: int, stream: int, *counters: int) -> int:
    """The seed of one episode, or of an evaluation's actions, a function of nothing but its arguments.

    Args:
        run_seed: the run's seed, 0 or more.
        stream: one of the above; two streams share no episode.
        counters: what tells episodes of a stream apart, such as (environment index, episode number).

    Returns:
        An int in [0, 2**32), which every environment family accepts.
    """
    return int(np.random.SeedSequence([run_seed, stream, *counters]).generate_state(1)[0])


class SeededEpisodes(gym.Wrapper):
    """An environment for training, whose every episode is a function of (run seed, index, episode number).

    So its whole state is the episode's number and the actions since its start: `load_state_dict` resets with that
    episode's seed and takes the actions again, which is exact in mid-episode for any deterministic environment.

    Args:
        env: the environment.
        run_seed: the run's seed.
        index: which of the run's environments this is.
    """

    def __init__(self, env: gym.Env, run_seed: int, index: int = 0):
        super().__init__(env)
        self._run_seed = run_seed
        self._index = index
        self._episode = 0
        self._actions: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        """Starts the next episode of the stream; `seed` is not for the caller to choose.

        With `options={"states": ...}`, states of all the run's environments, it continues its own episode instead.
        """
        if options and "states" in options:
            return self.load_state_dict(options["states"][self._index]), {}
        self._episode += 1
        self._actions = []
        obs, _ = self._reset_to_episode()
        return obs, {}

    def _reset_to_episode(self) -> tuple[Any, dict]:
        return self.env.reset(seed=episode_seed(self._run_seed, TRAIN_STREAM, self._index, self._episode))

    def step(self, action: np.ndarray) -> tuple[Any, Any, bool, bool, dict]:
        self._actions.append(np.array(action))
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {"repeats": info["repeats"]}  # what training reads, and no more

    def state_dict(self) -> dict[str, Any]:
        """The episode's number, from 1, and its actions so far, each (action_dim,)."""
        return {"episode": self._episode, "actions": [action.tolist() for action in self._actions]}

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Returns the newest observation of the restored episode."""
        self._episode = state["episode"]
        self._actions = []
        obs, _ = self._reset_to_episode()
        for action in state["actions"]:
            obs, *_ = self.step(np.asarray(action, np.float32))
        return obs
