"""Updates on a GPU as CUDA graphs: hundreds of kernels in one launch."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from agent.execution.audit import Audit, frozen
from agent.execution.eager import Result, frozen_by
from utils import UserError

Update = Callable[[], Result]
WARM_UPS = 3  # eager updates before a capture: libraries load kernels and choose algorithms in them


class CudaGraphs:
    """Captures work on one side stream, as torch.cuda.graph asks ("CUDA Graphs" in PyTorch's notes on CUDA).

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def warm_up(self, update: Update) -> Result:
        """Runs it on the side stream: a leaf of autograd's that met the default stream first could not be captured."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = update()
        current.wait_stream(self._stream)
        return result

    def capture(self, update: Update, generators: list[torch.Generator]) -> tuple[Result, Callable[[], None]]:
        """Records it, without running it.

        Args:
            update: device operations alone.
            generators: that it draws from; each replay draws from where they stand and moves them on.

        Returns:
            The tensors that every replay writes its result to, and the replay.
        """
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, stream=self._stream):  # a memory pool of its own: replays come in any order
            result = update()
        return result, graph.replay


class _Graph(NamedTuple):
    run: Callable[[], None]
    result: Result
    gradients: list[tuple[torch.nn.Parameter, torch.Tensor]]  # those that its replays write

    def replay(self) -> Result:
        for parameter, gradient in self.gradients:
            parameter.grad = gradient
        self.run()
        return self.result


class Captured:
    """One CUDA graph for each pattern of what is due in an update, captured after a few eager updates of that pattern.

    A graph holds the device's part of drawing a batch, the noise, and the update step with its metrics. What the host
    does before (sending new rows or a batch) stays outside. Warm-up updates are updates like any other, and capturing
    runs nothing, so eager and captured training make the same updates.

    Args:
        graphs: what captures.
    """

    def __init__(self, graphs: Any):
        self._backend = graphs
        self._warm_ups: Counter[Any] = Counter()
        self._batch_size = 0
        self._graphs: dict[Any, _Graph] = {}
        self._audit = Audit(exact=False)
        self._able = True

    def __call__(self, agent: Any, replay_buffer: Any) -> Result:
        replay_buffer.stage(agent.batch_size)
        if agent.batch_size != self._batch_size:  # the batch, and what parts draw, lie elsewhere since
            self._graphs.clear()
            self._warm_ups.clear()
            self._batch_size = agent.batch_size

        def update() -> Result:
            batch = replay_buffer.staged()
            return agent.compute(batch, agent.draw(batch))

        key = replay_buffer, frozen_by(agent)
        if key not in self._graphs:
            # What is due is known from the first update on, which asks: an empty pattern is nobody's.
            if not self._able or not agent.pattern or self._warm_ups[key] < WARM_UPS:
                self._warm_ups[key] += 1
                return self._backend.warm_up(update)
            self._graphs[key] = self._capture(agent, update, replay_buffer.generators)
        graph = self._graphs[key]
        if not self._audit.due():
            return graph.replay()
        return self._compared(agent, graph, update, replay_buffer.generators)

    def _compared(self, agent: Any, graph: _Graph, update: Update, generators: list[torch.Generator]) -> Result:
        states = [generator.get_state() for generator in generators]

        def again() -> Result:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)
            return self._backend.warm_up(update)

        result, difference = self._audit.compare(agent, graph.replay, again)
        if difference:
            print(frozen(difference, "captured"), flush=True)
            self._able = False
            self._graphs.clear()
        return result

    def _capture(self, agent: Any, update: Update, generators: list[torch.Generator]) -> _Graph:
        parameters = [parameter for module in agent.modules.values() for parameter in module.parameters()]
        before = [parameter.grad for parameter in parameters]
        try:
            result, replay = self._backend.capture(update, [agent.policy.generator, *generators])
        except RuntimeError as error:
            reason = str(error).strip().split("\n")[0]
            raise UserError(
                f"execution=captured: the update could not be captured here ({reason}); execution=eager can run it"
            ) from error
        written = [(p, p.grad) for p, old in zip(parameters, before, strict=True) if p.grad is not old]
        return _Graph(replay, result, [(p, gradient) for p, gradient in written if gradient is not None])
