"""Captured updates, for a GPU: CUDA graphs, hundreds of kernels in one launch."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from agent.execution import Result
from agent.execution.audit import Audit, difference_message
from utils import UserError

Update = Callable[[], Result]
WARM_UPS = 3  # eager updates before a capture: libraries load kernels and choose algorithms in them


class CudaGraphs:
    """Captures work on one side stream, as torch.cuda.graph requires ("CUDA Graphs" in PyTorch's notes on CUDA)."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def warm_up(self, update: Update) -> Result:
        """Runs an update on the side stream; a leaf of autograd first used on the default stream cannot be captured."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = update()
        current.wait_stream(self._stream)
        return result

    def capture(self, update: Update, generators: list[torch.Generator]) -> tuple[Result, Callable[[], None]]:
        """Captures an update, of device operations only, without running it. Each replay advances the generators.

        Returns:
            The tensors that every replay writes its result to, and the replay.
        """
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, stream=self._stream):  # a separate memory pool: replays run in any order
            result = update()
        return result, graph.replay


class Captured:
    """Replays updates from CUDA graphs, one per variant, each captured after a few eager updates of its variant.

    A graph holds the device's work: drawing a batch, the noise, and the update step with its metrics. The host's work
    before it (sending new rows or a batch) stays outside. Warm-up updates are real updates, and capturing runs
    nothing, so eager and captured training make the same updates.
    """

    def __init__(self, graphs: Any):
        self._backend = graphs
        self._warm_ups: Counter[Any] = Counter()
        self._batch_size = 0
        self._replays: dict[Any, Update] = {}
        self._audit = Audit(exact=False)
        self._enabled = True

    def __call__(self, agent: Any, replay_buffer: Any) -> Result:
        # The host's part.
        replay_buffer.stage(agent.batch_size)
        noise = agent.noise
        # Graphs hold the memory of the batch, which a new batch size replaces.
        if agent.batch_size != self._batch_size:
            self._replays.clear()
            self._warm_ups.clear()
            self._batch_size = agent.batch_size

        def update() -> Result:  # the device's part
            return agent.compute_update(replay_buffer.staged(), noise)

        # Warm up, then capture. Histograms are of gradients, which replays do not show.
        key = replay_buffer, agent.variant
        if not self._enabled or agent.histograms_due or self._warm_ups[key] < WARM_UPS:
            self._warm_ups[key] += 1
            return self._backend.warm_up(update)
        if key not in self._replays:
            self._replays[key] = self._capture(agent, update, replay_buffer.generators)

        # Replay; the audit compares a few replays with Python.
        replay = self._replays[key]
        if not self._audit.due():
            return replay()
        return self._compare(agent, replay, update, replay_buffer.generators)

    def _compare(self, agent: Any, replay: Update, update: Update, generators: list[torch.Generator]) -> Result:
        states = [generator.get_state() for generator in generators]

        def run_eagerly() -> Result:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)
            return self._backend.warm_up(update)

        result, difference = self._audit.compare(agent, replay, run_eagerly)
        if difference:
            print(difference_message(difference, "captured"), flush=True)
            self._enabled = False
        return result

    def _capture(self, agent: Any, update: Update, generators: list[torch.Generator]) -> Update:
        try:
            result, run = self._backend.capture(update, [agent.policy.generator, *generators])
        except RuntimeError as error:
            reason = str(error).strip().split("\n")[0]
            raise UserError(
                f"execution=captured: the update could not be captured ({reason}); choose execution=eager"
            ) from error

        def replay() -> Result:
            run()
            return result

        return replay
