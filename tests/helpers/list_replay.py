"""A model, in plain lists, of what a replay buffer has to hold after any steps of its environments."""

from typing import Any, NamedTuple

import numpy as np

GAMMA = 0.5  # with whole rewards, all sums are exact
GOES_ON, STANDS_STILL, TERMINATED, TRUNCATED, STARTS_OVER = range(5)  # STARTS_OVER: truncated, then the very first obs


class Row(NamedTuple):
    """A row as the buffer has to return it; an observation is a vector or a stack of frames."""

    obs: np.ndarray
    number: int  # of its step; also its action
    reward: float
    next_obs: np.ndarray
    discount: float


class ListReplay:
    """Environments, n-step rows and a replay buffer, written from their definitions.

    Nothing is overwritten: all rows and frames are kept, and their numbers tell which ones a ring would have lost.

    Args:
        num_envs, n_step: the run's settings.
        capacity: the buffer's maximum number of rows.
        stack: frames in an observation; 0 for vectors.
        frames: the buffer's maximum number of frames; a new frame is searched for among the newest half of them.
    """

    def __init__(self, num_envs: int, n_step: int, capacity: int, stack: int = 0, frames: int = 0):
        self.num_steps = 0  # of all environments together
        self.num_obs = 0  # vectors or frames made so far; each contains its number
        # For each environment, (obs, number, reward) of the steps whose rows are incomplete.
        self.pending: list[list[tuple[np.ndarray, int, float]]] = [[] for _ in range(num_envs)]
        self.rows: list[Row] = []  # all, oldest first
        self._n_step, self._capacity, self._stack, self._max_frames = n_step, capacity, stack, frames
        self._frames: list[bytes] = []  # all that were ever stored
        self._frames_of: list[set[int]] = []  # for each row, its frames' indices in _frames
        self._start = self._first()
        self._obs = [self._start] * num_envs

    def step(self, outcomes: list[int]) -> tuple[np.ndarray, ...]:
        """Steps every environment; returns the step as the arguments of `NStep.rows`."""
        obs, numbers = self._obs, [self.num_steps + i for i in range(len(outcomes))]
        rewards = [float(number % 1000) for number in numbers]
        next_obs = [o if what == STANDS_STILL else self._next(o) for o, what in zip(obs, outcomes, strict=True)]
        terminated = [what == TERMINATED for what in outcomes]
        done = [what in (TERMINATED, TRUNCATED, STARTS_OVER) for what in outcomes]
        for pending, *step in zip(self.pending, obs, numbers, rewards, next_obs, done, terminated, strict=True):
            self._complete(pending, *step)
        self.num_steps += len(outcomes)
        self._obs = [
            self._start if what == STARTS_OVER else self._first() if ended else o
            for o, what, ended in zip(next_obs, outcomes, done, strict=True)
        ]
        actions = np.array(numbers, np.float32)[:, None]
        return np.stack(obs), actions, np.array(rewards), np.stack(next_obs), np.array(done), np.array(terminated)

    def stored(self) -> list[Row]:
        """Returns the rows that can be drawn, oldest first."""
        lost = len(self._frames) - self._max_frames  # frames below this index are overwritten
        incomplete = [i for i, frames in enumerate(self._frames_of) if any(frame < lost for frame in frames)]
        return self.rows[max([len(self.rows) - self._capacity, 0, *(i + 1 for i in incomplete)]) :]

    def _complete(self, pending: list[Any], obs: Any, number: int, reward: float, next_obs: Any, *ends: bool) -> None:
        """Adds the rows that one environment's step completes."""
        done, terminated = ends
        pending.append((obs, number, reward))
        while pending and (done or len(pending) == self._n_step):
            first_obs, first_number, _ = pending[0]
            total = sum(GAMMA**k * later for k, (_, _, later) in enumerate(pending))
            discount = 0.0 if terminated else GAMMA ** (len(pending) - 1)
            self.rows.append(Row(first_obs, first_number, total, next_obs, discount))
            self._frames_of.append({self._place(frame) for o in (first_obs, next_obs) for frame in o[: self._stack]})
            del pending[0]

    def _place(self, frame: np.ndarray) -> int:
        """Returns a frame's index in _frames; stores the frame first unless it is among the newest."""
        first = max(0, len(self._frames) - self._max_frames // 2)
        newest = self._frames[first:]
        if frame.tobytes() not in newest:
            self._frames.append(frame.tobytes())
            return len(self._frames) - 1
        return first + max(i for i, stored in enumerate(newest) if stored == frame.tobytes())

    def _new(self) -> np.ndarray:
        """Returns a new vector, or a new frame of 2x2 pixels."""
        self.num_obs += 1
        if not self._stack:
            return np.array([self.num_obs, -self.num_obs], np.float32)
        return np.frombuffer(self.num_obs.to_bytes(4, "little"), np.uint8).reshape(1, 2, 2)

    def _first(self) -> np.ndarray:
        return np.concatenate([self._new() for _ in range(self._stack)]) if self._stack else self._new()

    def _next(self, obs: np.ndarray) -> np.ndarray:
        return np.concatenate([obs[1:], self._new()]) if self._stack else self._new()
