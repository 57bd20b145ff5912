"""An environment's step beside an update: a recorded one leaves Python's lock, and each gets a core."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

WORTH_S = 0.0001  # a shorter step saves less than waking a thread costs (docs/PERFORMANCE.md)
MEASURED = 20  # steps before that is known


class Updates(Protocol):
    """What runs updates: it calls `meanwhile`, once, as it next leaves Python's lock for longer (see Recorded)."""

    meanwhile: Callable[[], None] | None


class Stepping:
    """Steps environments in a thread of its own, where that pays.

    The actions are chosen before, and the transitions stored after, so no number depends on it; except in an
    environment that draws from a global random generator while an agent's update draws from the same one.

    Args:
        envs: stepped together.
        updates: beside whose work the thread runs; None if no core is free meanwhile, or they never leave the lock.
    """

    def __init__(self, envs: Any, updates: Updates | None):
        self._envs = envs
        self._updates = updates
        self._seconds: list[float] = []  # of the first steps
        self._pays = False
        self._thread: threading.Thread | None = None
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def begin(self, actions: Any) -> Callable[[], Any]:
        """Has a step made; the function that is returned ends it, and returns or raises what `envs.step` did."""
        if self._updates is None or not self._pays:
            return lambda: self._here(actions)
        updates = self._updates

        def start() -> None:
            self._asked.put((actions,))

        def result() -> Any:
            if updates.meanwhile is start:  # none has run since
                updates.meanwhile = None
                return self._here(actions)
            value, error = self._answers.get()
            if error is not None:
                raise error
            return value

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="environments", daemon=True)
            self._thread.start()
        # Not now: in front of an update's long work there are many short pieces, each of which would have to wait for
        # the lock again.
        updates.meanwhile = start
        return result

    def _here(self, actions: Any) -> Any:
        started_s = time.perf_counter()
        result = self._envs.step(actions)
        if len(self._seconds) < MEASURED:
            self._seconds.append(time.perf_counter() - started_s)
            self._pays = len(self._seconds) == MEASURED and min(self._seconds) > WORTH_S
        return result

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            try:
                self._answers.put((self._envs.step(*asked), None))
            except BaseException as error:  # whatever it is, it is raised where the step was asked for
                self._answers.put((None, error))

    def close(self) -> None:
        """Waits for a step under way."""
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
            self._thread = None
