"""Updates on a CPU as recordings: the same operations, and the same bytes, without Python between them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from agent.execution.audit import Audit, frozen
from agent.execution.eager import Result, frozen_by
from agent.execution.tracing import CannotRecordError, record


class _Recording(NamedTuple):
    program: Callable[[list[torch.Tensor]], list[torch.Tensor]]
    metrics: list[str]  # keys of the program's first results
    seen: list[str]  # of the next
    parameters: list[torch.nn.Parameter]  # whose gradients the last results are

    def replay(self, inputs: list[torch.Tensor]) -> Result:
        found = self.program(inputs)
        num_metrics, rest = len(self.metrics), len(self.metrics) + len(self.seen)
        for parameter, gradient in zip(self.parameters, found[rest:], strict=True):
            parameter.grad = gradient
        metrics = dict(zip(self.metrics, found[:num_metrics], strict=True))
        return metrics, dict(zip(self.seen, found[num_metrics:rest], strict=True))


class Recorded:
    """One recording for each pattern of what is due in an update, made while the first update of that pattern runs.

    Attributes:
        meanwhile: called, once, in front of the next recording that runs, which leaves Python's lock to other threads.
    """

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] | None = None
        self._batch_size = 0
        self._recordings: dict[Any, _Recording] = {}
        self._audit = Audit(exact=True)
        self._able = True

    def __deepcopy__(self, memo: Any) -> "Recorded":
        return Recorded()  # recordings change the agent that they are of

    def __call__(self, agent: Any, replay_buffer: Any) -> Result:
        batch = replay_buffer.sample(agent.batch_size)
        numbers = agent.draw(batch)
        if not self._able:
            return agent.compute(batch, numbers)
        if agent.batch_size != self._batch_size:  # what parts draw lies elsewhere since (agent.networks.layers.Dropout)
            self._recordings.clear()
            self._batch_size = agent.batch_size
        key = (type(batch), *frozen_by(agent))
        recording = self._recordings.get(key)
        if recording is None:
            return self._record(key, agent, batch, numbers)
        inputs = [*batch, *numbers]
        if not self._audit.due():
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                meanwhile()
            return recording.replay(inputs)
        result, difference = self._audit.compare(
            agent, lambda: recording.replay(inputs), lambda: agent.compute(batch, numbers)
        )
        if difference:
            print(frozen(difference, "recorded"), flush=True)
            self._able = False
        return result

    def _record(self, key: Any, agent: Any, batch: Any, numbers: list[torch.Tensor]) -> Result:
        parameters = [parameter for module in agent.modules.values() for parameter in module.parameters()]
        before = [parameter.grad for parameter in parameters]
        results: list[Result] = []
        written: list[torch.nn.Parameter] = []

        def update(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
            metrics, seen = agent.compute(type(batch)(*inputs[: len(batch)]), inputs[len(batch) :])
            results.append((metrics, seen))
            written.extend(p for p, old in zip(parameters, before, strict=True) if p.grad is not old)
            return [*metrics.values(), *seen.values(), *(parameter.grad for parameter in written)]

        try:
            _, program = record(update, [*batch, *numbers])
        except CannotRecordError as error:
            print(f"Updates run eagerly: {error} cannot be recorded.", flush=True)
            self._able = False
        else:
            metrics, seen = results[0]
            self._recordings[key] = _Recording(program, list(metrics), list(seen), written)
        return results[0]
