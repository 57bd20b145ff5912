"""A run's counters, unfinished episodes, and what is due: updates, evaluations and checkpoints."""

import math
import time
from typing import Any

import numpy as np

from utils import Every

COUNTS = ("step", "episode", "bursts", "updates_made", "updates_from", "last_eval_step")
RESULTS = ("evaluation_due", "last_return", "best_return", "best_score", "solved_step")


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
        last_eval_step: step of the newest evaluation; 0 before the first.
        last_return: mean return of the newest evaluation that has a result; nan before the first.
        best_return: mean return of the best evaluation so far; None before the first.
        best_score: that evaluation's value of the key `best_by`; 0 if `best_by` is the return.
        solved_step: step of the first evaluation that solved the task; None if none has.
    """

    def __init__(self, cfg: Any, updates_from: int):
        self.cfg = cfg
        self._evaluations = Every(cfg.eval_frequency)
        self._checkpoints = Every(cfg.checkpoint_frequency)
        self.step = 0
        self.episode = 0
        self.episode_reward = np.zeros(cfg.num_envs)
        self.episode_length = np.zeros(cfg.num_envs, int)
        self._episode_started_s = np.zeros(cfg.num_envs)
        self.bursts = 0
        self.updates_made = 0
        self.updates_from = updates_from
        self.num_taken = cfg.num_envs
        self.evaluation_due = False
        self.checkpoint_due = False
        self.last_eval_step = 0
        self.last_return = math.nan
        self.best_return: float | None = None
        self.best_score = 0.0
        self.solved_step: int | None = None

    def begin_episodes(self, which: np.ndarray) -> None:
        """Begins new episodes in the environments that the mask `which`, (num_envs,), selects."""
        self.episode_reward[which] = 0.0
        self.episode_length[which] = 0
        self._episode_started_s[which] = time.perf_counter()

    def count(self, rewards: np.ndarray, repeats: np.ndarray) -> int:
        """Counts one step of the training loop; returns the environment steps, summed over the environments.

        Args:
            rewards: (num_envs,).
            repeats: (num_envs,), the number of environment steps that each action was held for.
        """
        self.episode_reward += rewards
        self.episode_length += repeats
        self.num_taken = int(np.count_nonzero(repeats))
        return self.advance(int(repeats.sum()))

    def advance(self, steps: int) -> int:
        """Counts steps, so that evaluations and checkpoints become due; returns their number."""
        self.step += steps
        self.evaluation_due |= self._evaluations(self.step)
        self.checkpoint_due = self._checkpoints(self.step)
        return steps

    def end_episodes(self, indices: np.ndarray) -> dict[str, float]:
        """Counts the episodes of these environments as finished; returns their means for the log, by name.

        `steps_per_second` is the speed of all environments together.
        """
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
        """Returns the indices of the environments with an unfinished episode."""
        return np.flatnonzero(self.episode_length)

    def take_updates(self, num_transitions: int) -> int:
        """Returns the number of updates that are due now, and counts them as made.

        A burst of updates is due every `update_every` transitions, with `updates_per_step` updates per transition.
        Fractions add up over the bursts.
        """
        every = self.cfg.update_every
        self.bursts += num_transitions // every - (num_transitions - self.num_taken) // every
        made_before = self.updates_made
        # The sum over all bursts is rounded down, not each burst; 1e-9 is for rounding errors just below an integer.
        self.updates_made = math.floor(self.bursts * every * self.cfg.updates_per_step + 1e-9)
        return self.updates_made - made_before

    def evaluation_begun(self) -> None:
        """Records that the evaluation at this step has begun, so that it is no longer due."""
        self.evaluation_due = False
        self.last_eval_step = self.step

    def evaluated(self, step: int, mean_return: float, solved_from: float | None = None, score: float = 0.0) -> bool:
        """Records the result of the evaluation at a step; returns whether it is the first to reach `solved_from`."""
        self.last_return = mean_return
        if self.is_best(mean_return, score):
            self.best_return, self.best_score = mean_return, score
        if self.solved_step is not None or solved_from is None or mean_return < solved_from:
            return False
        self.solved_step = step
        return True

    def is_best(self, mean_return: float, score: float = 0.0) -> bool:
        """Returns whether an evaluation is better than every one so far: by its score, then by its mean return."""
        return self.best_return is None or (score, mean_return) > (self.best_score, self.best_return)

    def exclude_time(self, seconds: float) -> None:
        """Excludes time that was not spent on training from the durations of the unfinished episodes."""
        self._episode_started_s += seconds

    def state_dict(self) -> dict[str, Any]:
        """Returns plain values. An episode's age is saved, not its start, as another process has another clock."""
        return {name: getattr(self, name) for name in (*COUNTS, *RESULTS)} | {
            "episode_reward": self.episode_reward.tolist(),
            "episode_length": self.episode_length.tolist(),
            "episode_age_s": (time.perf_counter() - self._episode_started_s).tolist(),
            "evaluations": self._evaluations.state_dict(),
            "checkpoints": self._checkpoints.state_dict(),
            **({} if self.num_taken == self.cfg.num_envs else {"num_taken": self.num_taken}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state. Raises ValueError if it is not one that `state_dict` returned."""
        for name in COUNTS:
            setattr(self, name, int(state[name]))
        self.episode_reward = self._of_each(state, "episode_reward", float)
        self.episode_length = self._of_each(state, "episode_length", int)
        self._episode_started_s = time.perf_counter() - self._of_each(state, "episode_age_s", float)
        self._evaluations.load_state_dict(state["evaluations"])
        self.evaluation_due = bool(state["evaluation_due"])
        self.last_return = float(state["last_return"])
        best_return, solved_step = state["best_return"], state["solved_step"]
        self.best_return = None if best_return is None else float(best_return)
        self.best_score = float(state.get("best_score", 0.0))  # checkpoints before `best_by` have none
        self.solved_step = None if solved_step is None else int(solved_step)
        self._checkpoints.load_state_dict(state["checkpoints"])
        self.num_taken = int(state.get("num_taken", self.cfg.num_envs))

    def _of_each(self, state: dict[str, Any], name: str, kind: type) -> np.ndarray:
        values = state[name]
        if len(values) != self.cfg.num_envs or not all(type(value) is kind for value in values):
            raise ValueError(f"{name} is not {self.cfg.num_envs} of {kind.__name__}")
        return np.array(values, kind)


def describe_lack_of_updates(cfg: Any, updates_from: int) -> str | None:
    """Says why a run would end without an update; None if it would not. `updates_from` as for Progress."""
    last = cfg.num_train_steps - cfg.num_envs * cfg.action_repeat  # the step of the last decision
    transitions = last // cfg.action_repeat
    if cfg.num_seed_steps > last and not cfg.updates_while_seeding:
        why = f"num_seed_steps={cfg.num_seed_steps}"
    elif updates_from > transitions:
        why = f"{updates_from} transitions (min_buffer_size={cfg.min_buffer_size}) are waited for"
    elif cfg.update_every > transitions + cfg.num_envs:
        why = f"update_every={cfg.update_every}"
    else:
        return None
    return f"No update is to be expected within {cfg.num_train_steps} steps: {why}."
