"""How an agent's updates run: operation by operation, recorded, compiled, or as CUDA graphs. The numbers are the same.

On a CPU, Python and autograd take as long as a small network's arithmetic; a recording (agent/recording.py) leaves them
out, of acting too. On a GPU an update is some two hundred kernels of microseconds each, and Python needs longer to
launch them than the GPU to run them; a captured CUDA graph launches them all at once.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from agent.recording import CannotRecordError, record
from utils import Execution, UserError

Result = tuple[dict[str, Any], dict[str, torch.Tensor]]  # as OffPolicyAgent.update_step's
Update = Callable[[], Result]
WARM_UPS = 3  # eager updates before a capture: libraries load kernels and choose algorithms in them
COMPILE_BACKEND = "inductor"


class Eager:
    """Operation by operation."""

    def __call__(self, agent: Any, replay_buffer: Any) -> Result:
        return agent.update_on(replay_buffer.sample(agent.batch_size), agent.draw_noise())


class _Recording(NamedTuple):
    program: Callable[[list[torch.Tensor]], list[torch.Tensor]]
    frame: dict[str, Any]  # the metrics in their order, numbers filled in
    metrics: list[str]  # keys of the program's first results
    seen: list[str]  # of the next
    parameters: list[torch.nn.Parameter]  # whose gradients the last results are


class Recorded:
    """One recording for each pattern of what is due in an update, made while the first update of that pattern runs."""

    def __init__(self) -> None:
        self._recordings: dict[Any, _Recording] = {}
        self._able = True

    def __deepcopy__(self, memo: Any) -> "Recorded":
        return Recorded()  # recordings change the agent that they are of

    def __call__(self, agent: Any, replay_buffer: Any) -> Result:
        batch, noise = replay_buffer.sample(agent.batch_size), agent.draw_noise()
        what = agent.batch_size, agent.autocast_dtype, agent.training
        key = (what, *sorted(agent.pattern.items()))
        if key in self._recordings:
            program, frame, metrics, seen, parameters = self._recordings[key]
            found = program([*batch, noise])
            rest = len(metrics) + len(seen)
            for parameter, gradient in zip(parameters, found[rest:], strict=True):
                parameter.grad = gradient
            return frame | dict(zip(metrics, found, strict=False)), dict(zip(seen, found[len(metrics) :], strict=False))
        # An agent says what it asks about by asking: an empty pattern is the first update after a start.
        if not (agent.pattern and self._able):
            return agent.update_on(batch, noise)
        return self._record(key, agent, batch, noise)

    def _record(self, key: Any, agent: Any, batch: Any, noise: torch.Tensor) -> Result:
        parameters = [parameter for module in agent.modules.values() for parameter in module.parameters()]
        before = [parameter.grad for parameter in parameters]
        results: list[Result] = []
        written: list[torch.nn.Parameter] = []

        def update(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
            metrics, seen = agent.update_on(type(batch)(*inputs[:-1]), inputs[-1])
            results.append((metrics, seen))
            written.extend(p for p, old in zip(parameters, before, strict=True) if p.grad is not old)
            tensors = [value for value in metrics.values() if isinstance(value, torch.Tensor)]
            return [*tensors, *seen.values(), *(parameter.grad for parameter in written)]

        try:
            _, program = record(update, [*batch, noise])
        except CannotRecordError as error:
            print(f"Updates run eagerly: {error} cannot be recorded.")
            self._able = False
        else:
            metrics, seen = results[0]
            keys = [key for key, value in metrics.items() if isinstance(value, torch.Tensor)]
            frame = {key: None if key in keys else value for key, value in metrics.items()}
            self._recordings[key] = _Recording(program, frame, keys, list(seen), written)
        return results[0]


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
    replay: Callable[[], None]
    result: Result
    gradients: list[tuple[torch.nn.Parameter, torch.Tensor]]  # those that its replays write


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
        self._graphs: dict[Any, _Graph] = {}

    def __call__(self, agent: Any, replay_buffer: Any) -> Result:
        replay_buffer.stage(agent.batch_size)

        def update() -> Result:
            return agent.update_on(replay_buffer.staged(), agent.draw_noise())

        key = replay_buffer, tuple(sorted(agent.pattern.items()))
        if key not in self._graphs:
            # An agent says what it asks about by asking: an empty pattern is the first update after a start.
            if not agent.pattern or self._warm_ups[key] < WARM_UPS:
                self._warm_ups[key] += 1
                return self._backend.warm_up(update)
            self._graphs[key] = self._capture(agent, update, replay_buffer.generators)
        graph = self._graphs[key]
        for parameter, gradient in graph.gradients:
            parameter.grad = gradient
        graph.replay()
        return graph.result

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


def compiled(step: Callable[..., Result]) -> Callable[..., Result]:
    """torch.compile of an update step, gradients included; each pattern of what is due is compiled once."""
    torch._dynamo.config.trace_autograd_ops = True
    return torch.compile(step, backend=COMPILE_BACKEND, dynamic=False)


def choose_execution(execution: Execution, agent: Any, device: torch.device) -> tuple[str, str]:
    """What `execution` means for this agent on this device.

    Returns:
        The choice, and a line that says why `auto` is not the fastest ("" if it is).

    Raises:
        UserError: for an execution that cannot be had here.
    """
    on_gpu = device.type == "cuda"
    if execution == "eager":
        return "eager", ""
    follows = getattr(agent, "constants_on_schedule", None)
    if follows is None:
        obstacle = "the agent makes its updates itself"
    elif follows():
        names = ", ".join(f"agent.{name}" for name in follows())
        obstacle = f"{names} on a schedule would be frozen in it"
    else:
        obstacle = ""
    if execution == "auto":
        best = "captured" if on_gpu else "recorded"
        return ("eager", f"Updates run eagerly: {obstacle}.") if obstacle else (best, "")
    if obstacle:
        raise UserError(f"execution={execution}: {obstacle}; choose eager")
    if execution == "recorded" and on_gpu:
        raise UserError(
            f"execution={execution}: recordings are for a CPU, and device={device}; choose auto or captured"
        )
    if "captured" in execution and not on_gpu:
        raise UserError(f"execution={execution}: CUDA graphs need a GPU, and device={device}; choose auto or eager")
    if "compiled" in execution and not _can_compile(on_gpu):
        needs = "Triton" if on_gpu else "a C++ compiler (g++ or clang++)"
        raise UserError(f"execution={execution}: torch.compile needs {needs}, and none was found; choose auto or eager")
    return execution, ""


def set_execution(agent: Any, execution: str, device: torch.device) -> None:
    """Lets an agent's updates run as `choose_execution` said, and its acting with them."""
    if "compiled" in execution:
        agent.run_update_step = compiled(agent.update_step)
    if execution == "recorded":
        agent.execution = Recorded()
        agent.policy.record()
    if "captured" in execution:
        agent.execution = Captured(CudaGraphs(device))


def _can_compile(on_gpu: bool) -> bool:
    if on_gpu:
        from torch.utils._triton import has_triton

        return has_triton()
    from torch._inductor.cpp_builder import get_cpp_compiler  # not before: it takes a second to import
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True
