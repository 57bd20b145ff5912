"""An environment's step beside an update: both leave Python's lock for most of their time, so each gets a core."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WORTH_S = 0.0005  # a shorter step costs as much in waiting for Python's lock as it saves (docs/PERFORMANCE.md)
MEASURED = 20  # steps before that is known


class Stepping:
    """Steps environments in a thread of its own, where that pays.

    The actions are chosen before, and the transitions stored after, so no number depends on it; except in an
    environment that draws from a global random generator while an agent's update draws from the same one.

    Args:
        envs: stepped together.
        may_thread: whether a core is free while updates run, and they leave Python's lock.
    """

    def __init__(self, envs: Any, may_thread: bool):
        self._envs = envs
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="environments") if may_thread else None
        self._seconds: list[float] = []  # of the first steps
        self._pays = False

    def begin(self, actions: Any) -> Callable[[], Any]:
        """Begins a step; the function that is returned ends it, and returns or raises what `envs.step` did."""
        if self._pool is not None and self._pays:
            return self._pool.submit(self._envs.step, actions).result
        return lambda: self._here(actions)

    def _here(self, actions: Any) -> Any:
        started_s = time.perf_counter()
        result = self._envs.step(actions)
        if len(self._seconds) < MEASURED:
            self._seconds.append(time.perf_counter() - started_s)
            self._pays = len(self._seconds) == MEASURED and min(self._seconds) > WORTH_S
        return result

    def close(self) -> None:
        """Waits for a step under way."""
        if self._pool is not None:
            self._pool.shutdown()
