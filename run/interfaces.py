"""The interfaces that the training loop requires of parts. A user's own part has to have them too."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


class Envs(Protocol):
    """Environments stepped together, which do not reset themselves (see envs/processes.py)."""

    def reset(self, *, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]: ...

    def step(self, actions: Any) -> Any: ...

    def close(self) -> None: ...


class Actor(Protocol):
    """Chooses actions: an agent, or the policy of the first steps."""

    def act(self, obs: np.ndarray, sample: bool = ...) -> np.ndarray: ...


class Learner(Actor, Protocol):
    """An agent (see agent.Agent)."""

    def update(self, replay_buffer: Any, logger: Any, step: int) -> None: ...

    def observe(
        self,
        obs: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        next_obs: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None: ...

    def reset(self) -> None: ...


class Buffer(Protocol):
    """Stores rows. The agent decides which other methods its updates call (see replay_buffer.py)."""

    @property
    def num_added(self) -> int: ...

    @property
    def add(self) -> Callable[..., Any]: ...


class MetricLogger(Protocol):
    """Averages metrics and writes rows (see logger.py)."""

    def log(self, key: str, value: Any, step: int) -> None: ...

    def dump(self, step: int, *, ty: str | None = ...) -> dict[str, Any]: ...
