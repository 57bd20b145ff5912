"""An environment's step beside an update: both leave Python's lock for most of their time, so each gets a core."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Stepping:
    """Steps environments in a thread of its own, where that pays.

    The actions are chosen before, and the transitions stored after, so no number depends on it; except in an
    environment that draws from a global random generator while an agent's update draws from the same one.

    Args:
        envs: stepped together.
        beside: whether to use the thread.
    """

    def __init__(self, envs: Any, beside: bool):
        self._envs = envs
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="environments") if beside else None

    def begin(self, actions: Any) -> Callable[[], Any]:
        """Begins a step; the function that is returned ends it, and returns or raises what `envs.step` did."""
        if self._pool is None:
            return lambda: self._envs.step(actions)
        return self._pool.submit(self._envs.step, actions).result

    def close(self) -> None:
        """Waits for a step under way."""
        if self._pool is not None:
            self._pool.shutdown()
