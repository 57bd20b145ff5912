"""Recorded episodes, turned into rows of the replay buffer."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from replay.n_step import NStep
from replay_buffer import Batch


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


def feed(
    episodes: Iterable[Episode], n_step: NStep, observe: Callable[..., None] | None, add: Callable[..., None]
) -> None:
    """Passes every transition to an agent and adds the rows to a replay buffer."""
    for episode in episodes:
        last = len(episode.rewards) - 1
        for t in range(last + 1):
            now, next_one = slice(t, t + 1), slice(t + 1, t + 2)
            obs, action, reward = episode.obs[now], episode.actions[now], episode.rewards[now]
            done = np.array([t == last])
            terminated = done & episode.terminated
            if observe is not None:
                observe(obs, action, reward, episode.obs[next_one], terminated, done & ~terminated)
            add(*n_step.rows(obs, action, reward, episode.obs[next_one], done, terminated))


def split_episodes(rows: Batch, num_envs: int) -> Iterator[Episode]:
    """Rebuilds episodes from one-step transitions (N, ...), oldest first; those of several environments may alternate.

    Transition b follows transition a if b's observation equals a's next observation bit for bit, and b is among the
    next `num_envs` rows.
    """
    obs, actions, rewards, next_obs, discounts = (column.cpu().numpy() for column in rows[:5])
    terminated = discounts[:, 0] == 0
    # Unfinished chains of rows by their last next_obs, which several environments may share at once.
    unfinished: dict[bytes, deque[list[int]]] = {}
    chains: list[list[int]] = []
    for index in range(len(obs)):
        matching = unfinished.get(obs[index].tobytes())
        while matching and index - matching[0][-1] > num_envs:
            matching.popleft()  # cut short
        chain = matching.popleft() if matching else []
        if not chain:
            chains.append(chain)
        chain.append(index)
        if not terminated[index]:
            unfinished.setdefault(next_obs[index].tobytes(), deque()).append(chain)
    for chain in chains:
        all_obs = np.concatenate([obs[chain], next_obs[chain[-1:]]])
        yield Episode(all_obs, actions[chain], rewards[chain, 0].astype(np.float64), bool(terminated[chain[-1]]))
