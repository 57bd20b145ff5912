"""Recorded episodes, turned into rows of the replay buffer."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from replay.n_step import NStep
from utils import FLOAT32_MAX


class Episode(NamedTuple):
    """T consecutive transitions.

    Attributes:
        obs: (T + 1, obs_dim), float32.
        actions: (T, |A|), float32 in [-1, 1]; or (T, 1), integers from 0, in float32.
        rewards: (T,), float64.
        terminated: whether the episode terminated; otherwise a time limit, or the end of the data, truncated it.
    """

    obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: bool

    def fault(self) -> str | None:
        """Describes the first number that is not finite in float32; returns None if all are finite."""
        for name in ("obs", "actions", "rewards"):
            values = getattr(self, name)
            wrong = np.argwhere(~(np.abs(values) <= FLOAT32_MAX))  # also true for nan
            if len(wrong):
                return f"{name}{wrong[0].tolist()} is {values[tuple(wrong[0])]}"
        return None


def feed(
    episodes: Iterable[Episode], n_step: NStep, observe: Callable[..., None] | None, add: Callable[..., None]
) -> tuple[int, list[float]]:
    """Passes every transition to an agent and adds the rows to a replay buffer.

    Args:
        n_step: builds the rows, for one environment.
        observe: an agent's `observe`, or None.
        add: a replay buffer's `add_batch` (see replay.adding.batch_adder).

    Returns:
        The number of transitions, and each episode's return.
    """
    count, returns = 0, []
    for episode in episodes:
        last = len(episode.rewards) - 1
        for t in range(last + 1):
            done, terminated = np.array([t == last]), np.array([t == last and episode.terminated])
            obs, next_obs, action = episode.obs[t : t + 1], episode.obs[t + 1 : t + 2], episode.actions[t : t + 1]
            reward = episode.rewards[t : t + 1]
            if observe is not None:
                observe(obs, action, reward, next_obs, terminated, done & ~terminated)
            add(*n_step.rows(obs, action, reward, next_obs, done, terminated))
        count += last + 1
        returns.append(float(episode.rewards.sum()))
    return count, returns


def chains(columns: dict[str, np.ndarray], num_envs: int) -> Iterable[Episode]:
    """Rebuilds episodes from one-step transitions; those of several environments may alternate.

    Transition b follows transition a if b's observation equals a's next observation bit for bit, and b is among the
    next `num_envs` rows.

    Args:
        columns: obs, next_obs (N, obs_dim); actions (N, |A|); rewards (N,); discounts (N,), 0 at a termination.
    """
    obs, next_obs, terminated = columns["obs"], columns["next_obs"], columns["discounts"] == 0
    # Unfinished chains by their last next_obs, which several environments may share at once.
    open_chains: dict[bytes, deque[list[int]]] = {}
    all_chains: list[list[int]] = []
    for index in range(len(obs)):
        matching = open_chains.get(obs[index].tobytes())
        while matching and index - matching[0][-1] > num_envs:
            matching.popleft()  # cut short
        chain = matching.popleft() if matching else []
        if not chain:
            all_chains.append(chain)
        chain.append(index)
        if not terminated[index]:
            open_chains.setdefault(next_obs[index].tobytes(), deque()).append(chain)
    for chain in all_chains:
        all_obs = np.concatenate([obs[chain], next_obs[chain[-1:]]])
        yield Episode(all_obs, columns["actions"][chain], columns["rewards"][chain], bool(terminated[chain[-1]]))


def columns_of(batch: Any) -> dict[str, np.ndarray]:
    """Converts a replay buffer's Batch to arrays, for `chains`."""
    obs, actions, rewards, next_obs, discounts = (column.cpu().numpy() for column in batch[:5])
    rewards = rewards[:, 0].astype(np.float64)
    return {"obs": obs, "next_obs": next_obs, "actions": actions, "rewards": rewards, "discounts": discounts[:, 0]}
