"""Recorded updates, for a CPU: the same operations, and the same bytes, without Python between them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from agent.execution.audit import Audit, difference_message
from agent.execution.eager import Result, variant
from agent.execution.tracing import CannotTraceError, trace
from agent.toolkit.noise import DrawnNoise


class _Recording(NamedTuple):
    """A traced update. Its results are the metrics, the histogram inputs and the gradients, in this order."""

    program: Callable[[list[torch.Tensor]], list[torch.Tensor]]
    metric_keys: list[str]
    output_keys: list[str]
    parameters: list[torch.nn.Parameter]  # those whose gradients the update writes

    def replay(self, inputs: list[torch.Tensor]) -> Result:
        results = iter(self.program(inputs))
        metrics = {key: next(results) for key in self.metric_keys}
        outputs = {key: next(results) for key in self.output_keys}
        for parameter, gradient in zip(self.parameters, results, strict=True):
            parameter.grad = gradient
        return metrics, outputs


class Recorded:
    """Replays updates from recordings, one per variant; each is made while the first update of its variant runs.

    Attributes:
        meanwhile: called once, before the next replay, which leaves the GIL to other threads.
    """

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] | None = None
        self._batch_size = 0
        self._recordings: dict[Any, _Recording] = {}
        self._audit = Audit(exact=True)
        self._enabled = True

    def __call__(self, agent: Any, replay_buffer: Any) -> Result:
        batch = replay_buffer.sample(agent.batch_size)
        noise = agent.draw_noise(batch)
        if not self._enabled:
            return agent.compute_update(batch, noise)

        # Recordings hold the memory that layers draw into, which a new batch size replaces.
        if agent.batch_size != self._batch_size:
            self._recordings.clear()
            self._batch_size = agent.batch_size

        # The first update of a variant runs in Python and is recorded.
        key = (type(batch), *variant(agent))
        recording = self._recordings.get(key)
        if recording is None:
            return self._record(key, agent, batch, noise)

        # Later ones are replayed; the audit compares a few of them with Python.
        inputs = [*batch, *noise.numbers]
        if not self._audit.due():
            callback, self.meanwhile = self.meanwhile, None
            if callback is not None:
                callback()
            return recording.replay(inputs)
        result, difference = self._audit.compare(
            agent, lambda: recording.replay(inputs), lambda: agent.compute_update(batch, noise)
        )
        if difference:
            print(difference_message(difference, "recorded"), flush=True)
            self._enabled = False
        return result

    def _record(self, key: Any, agent: Any, batch: Any, noise: DrawnNoise) -> Result:
        parameters = [parameter for module in agent.modules.values() for parameter in module.parameters()]
        gradients_before = [parameter.grad for parameter in parameters]
        results: list[Result] = []
        written: list[torch.nn.Parameter] = []

        def update(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
            numbers = inputs[len(batch) :]
            metrics, outputs = agent.compute_update(type(batch)(*inputs[: len(batch)]), DrawnNoise(noise.plan, numbers))
            results.append((metrics, outputs))
            written.extend(p for p, before in zip(parameters, gradients_before, strict=True) if p.grad is not before)
            return [*metrics.values(), *outputs.values(), *(parameter.grad for parameter in written)]

        try:
            _, program = trace(update, [*batch, *noise.numbers])
        except CannotTraceError as error:
            print(f"Updates run eagerly: {error} cannot be recorded.", flush=True)
            self._enabled = False
        else:
            metrics, outputs = results[0]
            self._recordings[key] = _Recording(program, list(metrics), list(outputs), written)
        return results[0]
