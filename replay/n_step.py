"""n-step transitions. n steps of an environment become one row of the replay buffer."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from settings.types import PositiveInt, UnitInterval
from utils import to_np


class NStep:
    """Turns the transitions of all environments, step by step, into rows for the replay buffer.

    The row that begins at step t has obs_t, action_t, the reward r_t + gamma r_{t+1} + … of k steps, the observation
    after them, and the discount gamma^(k-1); k is n, or fewer if the episode ends sooner. Each transition begins a row,
    and no row crosses the end of an episode. With n above 1, the rows of each environment's newest transitions, n - 1
    at most, are not complete yet: these transitions are pending.
    """

    def __init__(self, n_step: PositiveInt, discount: UnitInterval = 1.0):
        self._n_step = n_step
        self._discount = discount
        self._discounts = np.array([discount**k for k in range(n_step)])  # of rows of k + 1 steps
        # The newest n steps, (n, num_envs, ...), as a ring: the step taken k steps ago is at index (newest - k) % n.
        self._obs: Any = None
        self._actions: Any = None
        self._rewards = np.zeros((n_step, 0))
        self._newest = -1
        self._counts = np.zeros(0, int)  # (num_envs,): number of pending transitions

    def rows(
        self,
        obs: Any,
        actions: Any,
        rewards: np.ndarray,
        next_obs: Any,
        done: np.ndarray,
        terminated: np.ndarray,
        taken: np.ndarray | None = None,
    ) -> tuple[Any, ...]:
        """Takes one step of every environment and returns the rows that it completes.

        Args:
            obs, next_obs: (num_envs, obs_dim), or images; tensors stay on their device.
            actions: (num_envs, |A|).
            rewards, done, terminated: (num_envs,); done is terminated or truncated.
            taken: (num_envs,), whether each environment took the step; None if all did. One with pending transitions
                has to take it: only the first step after an episode's end may be left out.

        Returns:
            The arguments of `ReplayBuffer.add_batch`; the rows are grouped by environment, oldest first.
        """
        if self._n_step == 1:
            step = obs, actions, rewards, next_obs, done, terminated
            return step if taken is None else tuple(_pick(column, np.flatnonzero(taken)) for column in step)
        self._keep(obs, actions, rewards)
        self._counts += 1 if taken is None else taken
        num_rows = np.where(done, self._counts, self._counts == self._n_step)
        envs = np.repeat(np.arange(len(obs)), num_rows)
        row = np.arange(len(envs)) - np.repeat(num_rows.cumsum() - num_rows, num_rows)  # within its environment
        ages = self._counts[envs] - 1 - row  # steps since the row's first step
        self._counts -= num_rows
        slots = (self._newest - ages) % self._n_step
        firsts = _pick(self._obs, slots, envs), _pick(self._actions, slots, envs), self._sum_rewards()[ages, envs]
        return *firsts, _pick(next_obs, envs), done[envs], terminated[envs], self._discounts[ages]

    def _keep(self, obs: Any, actions: Any, rewards: np.ndarray) -> None:
        """Copies a step into the ring, as its arrays may be reused."""
        if isinstance(obs, torch.Tensor):
            actions = torch.as_tensor(actions).to(obs.device, non_blocking=True)  # a seed policy returns an array
            if isinstance(self._obs, np.ndarray):  # restored
                self._obs, self._actions = (torch.from_numpy(r).to(obs.device) for r in (self._obs, self._actions))
        if self._obs is None:
            stack = torch.stack if isinstance(obs, torch.Tensor) else np.stack
            self._obs, self._actions = (stack([each] * self._n_step) for each in (obs, actions))
            self._rewards, self._counts = np.zeros((self._n_step, len(obs))), np.zeros(len(obs), int)
        self._newest = (self._newest + 1) % self._n_step
        for ring, values in ((self._obs, obs), (self._actions, actions), (self._rewards, rewards)):
            ring[self._newest] = values

    def _sum_rewards(self) -> np.ndarray:
        """Returns the discounted sums of the rewards of the last k + 1 steps, (n, num_envs), for k = 0, 1, …"""
        returns, total = np.empty_like(self._rewards), 0.0
        for k in range(self._n_step):
            returns[k] = total = self._rewards[self._newest - k] + self._discount * total
        return returns

    @property
    def num_pending(self) -> int:
        return int(self._counts.sum())

    def forget(self) -> None:
        """Drops the pending transitions, whose episodes will not continue."""
        self._counts[:] = 0

    def state_dict(self) -> dict[str, Any]:
        """Returns the newest steps as tensors on the host, and which of them are pending."""
        rings = {} if self._obs is None else {"obs": self._obs, "actions": self._actions}
        state = {name: torch.as_tensor(ring).cpu().clone() for name, ring in rings.items()}
        numbers = {"newest": self._newest, "counts": self._counts.tolist(), "rewards": self._rewards.tolist()}
        return state | numbers

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._newest, self._counts = state["newest"], np.array(state["counts"], int)
        self._rewards = np.array(state["rewards"], float)
        if "obs" in state:
            self._obs, self._actions = (state[name].clone().numpy() for name in ("obs", "actions"))


def batch_adder(buffer: Any) -> Callable[..., None]:
    """Returns a buffer's `add_batch`; if there is none, or its class overrides `add` alone, a loop over `add`."""
    owners = [next((c for c in type(buffer).__mro__ if name in vars(c)), object) for name in ("add_batch", "add")]
    return buffer.add_batch if issubclass(*owners) and owners[0] is not object else partial(add_each, buffer)


def add_each(buffer: Any, *columns: Any) -> None:
    """Calls `buffer.add` for each of N rows; takes its arguments, each (N, ...)."""
    arrays = [to_np(column) if isinstance(column, torch.Tensor) else column for column in columns]
    for row in zip(*(array.tolist() if array.ndim == 1 else array for array in arrays), strict=True):
        buffer.add(*row)


def _pick(values: Any, *index: np.ndarray) -> Any:
    """Returns rows of an array or a tensor; the index is copied to a tensor's device asynchronously."""
    if isinstance(values, torch.Tensor):
        return values[tuple(torch.from_numpy(i).to(values.device, non_blocking=True) for i in index)]
    return values[index]
