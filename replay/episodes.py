"""Episodes that were recorded before, made into the rows that a replay buffer stores."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from replay.n_step import NStep
from utils import FLOAT32_MAX


class Episode(NamedTuple):
    """T transitions that follow each other.

    Shapes and dtypes: obs (T + 1, obs_dim) float32; actions (T, |A|) float32 in [-1, 1]; rewards (T,) float64.
    `terminated` says that the last state has no future; otherwise a limit, or the end of the data, cut it off.
    """

    obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: bool

    def fault(self) -> str | None:
        """The first number in it that is not finite in float32; None if all are."""
        for name in ("obs", "actions", "rewards"):
            values = getattr(self, name)
            wrong = np.argwhere(~(np.abs(values) <= FLOAT32_MAX))  # also of nan
            if len(wrong):
                return f"{name}{wrong[0].tolist()} is {values[tuple(wrong[0])]}"
        return None


def feed(
    episodes: Iterable[Episode], n_step: NStep, observe: Callable[..., None] | None, add: Callable[..., None]
) -> tuple[int, list[float]]:
    """Shows every transition to what follows the data, and stores the rows that they make.

    Args:
        n_step: makes the rows, as for one environment; none reaches from one episode into the next.
        observe: an agent's; None shows them to nobody.
        add: a replay buffer's.

    Returns:
        How many transitions they were, and each episode's return.
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
            for row in n_step.rows(obs, action, reward, next_obs, done, terminated):
                add(*row)
        count += last + 1
        returns.append(float(episode.rewards.sum()))
    return count, returns


def chains(columns: dict[str, np.ndarray]) -> Iterable[Episode]:
    """One-step transitions, put together to episodes again, whatever the order in which environments gave them.

    One follows another where its observation is, to the last bit, the observation behind that one.

    Args:
        columns: obs, next_obs (N, obs_dim), actions (N, |A|), rewards (N,), discounts (N,), 0 where one terminated.
    """
    obs, next_obs, terminated = columns["obs"], columns["next_obs"], columns["discounts"] == 0
    # By the observation that the next transition has to begin with; several environments may see the same at once.
    going_on: dict[bytes, deque[list[int]]] = {}
    found: list[list[int]] = []
    for index in range(len(obs)):
        waiting = going_on.get(obs[index].tobytes())
        chain = waiting.popleft() if waiting else []
        if not chain:
            found.append(chain)
        chain.append(index)
        if not terminated[index]:
            going_on.setdefault(next_obs[index].tobytes(), deque()).append(chain)
    for chain in found:
        all_obs = np.concatenate([obs[chain], next_obs[chain[-1:]]])
        yield Episode(all_obs, columns["actions"][chain], columns["rewards"][chain], bool(terminated[chain[-1]]))


def columns_of(batch: Any) -> dict[str, np.ndarray]:
    """A replay buffer's Batch as arrays, for `chains`."""
    as_arrays = {name: column.cpu().numpy() for name, column in batch._asdict().items()}
    rewards, discounts = as_arrays["reward"][:, 0].astype(np.float64), as_arrays["discount"][:, 0]
    obs, next_obs, actions = as_arrays["obs"], as_arrays["next_obs"], as_arrays["action"]
    return {"obs": obs, "next_obs": next_obs, "actions": actions, "rewards": rewards, "discounts": discounts}
