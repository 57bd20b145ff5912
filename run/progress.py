"""A run's counters, unfinished episodes, and what is due: updates, evaluations and checkpoints."""

import math
import time
from typing import Any

import numpy as np

SAVED = (
    *("step", "episode", "bursts", "updates_made", "updates_from", "num_taken", "evaluation_due", "last_eval_step"),
    "last_return",
)


class Progress:
    """A run's counters, and its unfinished training episodes.

    Args:
        cfg: the settings, or an object with the keys of length and frequencies.
        updates_from: number of transitions in the replay buffer before the first update.

    Attributes:
        step: environment steps, summed over the environments.
        episode: number of finished training episodes.
        episode_reward, episode_length: (num_envs,), return and environment steps so far of the unfinished episodes.
        num_taken: number of environments that took a step in the newest step of the training loop.
        last_eval_step, last_return: step and mean return of the newest evaluation; 0 and nan before the first.
    """

    def __init__(self, cfg: Any, updates_from: int):
        self.cfg = cfg
        self.step = self.episode = self.bursts = self.updates_made = self.last_eval_step = 0
        self.episode_reward = np.zeros(cfg.num_envs)
        self.episode_length = np.zeros(cfg.num_envs, int)
        self._episode_started_s = np.zeros(cfg.num_envs)
        self.updates_from = updates_from
        self.num_taken = cfg.num_envs
        self.evaluation_due = self.checkpoint_due = False
        self.last_return = math.nan

    def begin_episodes(self, which: np.ndarray) -> None:
        """Begins new episodes in the environments that the mask `which`, (num_envs,), selects."""
        self.episode_reward[which] = 0.0
        self.episode_length[which] = 0
        self._episode_started_s[which] = time.perf_counter()

    def count(self, rewards: np.ndarray, repeats: np.ndarray) -> int:
        """Counts one step of the training loop: rewards (num_envs,), and repeats (num_envs,), for how many environment
        steps each action was held. Returns the sum of these."""
        self.episode_reward += rewards
        self.episode_length += repeats
        self.num_taken = int(np.count_nonzero(repeats))
        before, steps = self.step, int(repeats.sum())
        self.step += steps
        self.evaluation_due |= _has_crossed(self.cfg.eval_frequency, before, self.step)
        self.checkpoint_due = _has_crossed(self.cfg.checkpoint_frequency, before, self.step)
        return steps

    def end_episodes(self, indices: np.ndarray) -> dict[str, float]:
        """Counts the episodes of these environments as finished; returns their means for the log, by name, with the
        speed of all environments together."""
        self.episode += len(indices)
        lengths, seconds = self.episode_length[indices], time.perf_counter() - self._episode_started_s[indices]
        row = {
            "episode": self.episode,
            "episode_reward": float(self.episode_reward[indices].mean()),
            "episode_length": int(lengths[0]) if len(indices) == 1 else float(lengths.mean()),
            "duration": float(seconds.mean()),
            "steps_per_second": float((lengths / seconds).mean()) * self.cfg.num_envs,
        }
        self.episode_length[indices] = 0
        return row

    def unfinished(self) -> np.ndarray:
        return np.flatnonzero(self.episode_length)

    def take_updates(self, num_transitions: int) -> int:
        """Returns the number of updates that are due now, and counts them as made: a burst every `update_every`
        transitions, with `updates_per_step` updates per transition. Fractions add up over the bursts."""
        every = self.cfg.update_every
        self.bursts += num_transitions // every - (num_transitions - self.num_taken) // every
        made_before = self.updates_made
        # The sum over all bursts is rounded down, not each burst; 1e-9 is for rounding errors just below an integer.
        self.updates_made = math.floor(self.bursts * every * self.cfg.updates_per_step + 1e-9)
        return self.updates_made - made_before

    def exclude_time(self, seconds: float) -> None:
        """Excludes time that was not spent on training from the durations of the unfinished episodes."""
        self._episode_started_s += seconds

    def state_dict(self) -> dict[str, Any]:
        """Returns plain values. An episode's age is saved, not its start, as another process has another clock."""
        return {name: getattr(self, name) for name in SAVED} | {
            "episode_reward": self.episode_reward.tolist(),
            "episode_length": self.episode_length.tolist(),
            "episode_age_s": (time.perf_counter() - self._episode_started_s).tolist(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in SAVED:
            setattr(self, name, state[name])
        self.episode_reward, self.episode_length = np.array(state["episode_reward"]), np.array(state["episode_length"])
        self._episode_started_s = time.perf_counter() - np.array(state["episode_age_s"])


def _has_crossed(frequency: int, before: int, after: int) -> bool:
    """Returns whether a multiple of `frequency`, which 0 has none of, is in (before, after]."""
    return frequency > 0 and after // frequency > before // frequency
