"""Recorded updates, for a CPU: the same operations, and the same bytes, without Python between them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from agent.execution import Result
from agent.execution.audit import Audit, difference_message
from agent.execution.tracing import CannotTraceError, trace


class _Recording(NamedTuple):
    """A traced update. Its results are the metrics and the outputs, in this order."""

    program: Callable[[list[Tensor]], list[Tensor]]
    metric_keys: list[str]
    output_keys: list[str]

    def replay(self, inputs: list[Tensor]) -> Result:
        results = iter(self.program(inputs))
        return {key: next(results) for key in self.metric_keys}, {key: next(results) for key in self.output_keys}


class Recorded:
    """Replays updates from recordings, one per variant; each is made while the first update of its variant runs."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] | None = None  # called once, before a replay, which leaves the GIL to others
        self._recordings: dict[Any, _Recording] = {}
        self._audit = Audit(exact=True)
        self._enabled = True

    def __call__(self, agent: Any, replay_buffer: Any) -> Result:
        batch = replay_buffer.sample(agent.batch_size)
        if not self._enabled or agent.histograms_due:  # of gradients, which replays do not show
            return agent.compute_update(batch, agent.noise)

        # Later updates of a variant are replayed; the audit compares a few of them with Python.
        if recording := self._recordings.get((type(batch), agent.batch_size, agent.variant)):
            if not self._audit.due():
                callback, self.meanwhile = self.meanwhile, None
                if callback is not None:
                    callback()
                return recording.replay([*batch])
            result, difference = self._audit.compare(
                agent, lambda: recording.replay([*batch]), lambda: agent.compute_update(batch, agent.noise)
            )
            if difference:
                print(difference_message(difference, "recorded"), flush=True)
                self._enabled = False
            return result

        # The first one runs in Python and is recorded.
        results: list[Result] = []

        def update(inputs: list[Tensor]) -> list[Tensor]:
            metrics, outputs = agent.compute_update(type(batch)(*inputs), agent.noise)
            results.append((metrics, outputs))
            return [*metrics.values(), *outputs.values()]

        try:
            _, program = trace(update, [*batch])
        except CannotTraceError as error:
            print(f"Updates run eagerly: {error} cannot be recorded.", flush=True)
            self._enabled = False
        else:
            metrics, outputs = results[0]
            key = type(batch), agent.batch_size, agent.variant  # not before: the update may have asked more of `due`
            self._recordings[key] = _Recording(program, list(metrics), list(outputs))
        return results[0]
