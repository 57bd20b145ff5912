"""Steps environments in a thread during an update: a recorded update releases the GIL, so each gets a core."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

MIN_THREADED_STEP_S = 0.0001  # for shorter steps waking the thread costs more than it saves (docs/PERFORMANCE.md)
MEASURED = 20  # number of first steps that are timed


class Stepping:
    """Steps environments in a thread if that saves time.

    Actions are chosen before and transitions stored after the step, so the thread changes no number, except if an
    environment and an update both draw from the same global random generator.

    Args:
        envs: a vector environment.
        updates: calls its `meanwhile` once, if that is not None, before an update next releases the GIL for long; None
            if no core is free, or updates never release it.
    """

    def __init__(self, envs: Any, updates: Any):
        self._envs, self._updates = envs, updates
        self._first_steps_s: list[float] = []
        self._pays = False
        self._thread = ThreadPoolExecutor(1, "environments")  # not started before its first step

    def prepare(self, actions: Any) -> Callable[[], Any]:
        """Returns a function that steps, or with a thread waits for a step that an update starts; it returns or raises
        what `envs.step` does."""
        if self._updates is None or not self._pays:
            return lambda: self._step(actions)
        started: list[Future[Any]] = []

        def start() -> None:
            started.append(self._thread.submit(self._envs.step, actions))

        def finish() -> Any:
            if started:
                return started[0].result()
            self._updates.meanwhile = None  # no update has started it
            return self._step(actions)

        # Not started now: an update begins with many short operations, each of which would then wait for the GIL.
        self._updates.meanwhile = start
        return finish

    def _step(self, actions: Any) -> Any:
        started_s = time.perf_counter()
        result = self._envs.step(actions)
        if len(self._first_steps_s) < MEASURED:
            self._first_steps_s.append(time.perf_counter() - started_s)
            self._pays = len(self._first_steps_s) == MEASURED and min(self._first_steps_s) > MIN_THREADED_STEP_S
        return result

    def close(self) -> None:
        """Ends the thread after its current step."""
        self._thread.shutdown()
