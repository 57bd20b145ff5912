"""A function's tensor operations, recorded once and run again by TorchScript's interpreter.

At 256 units half of an update on a CPU is what leads from one operation to the next: Python, modules, autograd's graph
and engine. A recording has none of it left. It makes the same operations in the same order, so it gives the same bytes.
"""

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

Tensors = list[torch.Tensor]


class CannotRecordError(Exception):
    """An operation that a recording cannot hold; the message names it."""


def record(function: Callable[[Tensors], Tensors], inputs: Tensors) -> tuple[Tensors, Callable[[Tensors], Tensors]]:
    """Runs a function and records its operations.

    Args:
        function: of the inputs, and of other tensors that stay where they are, which it may change in place. Numbers
            and branches in Python are frozen as they are in this run.
        inputs: as every later call has them: shapes, types, strides.

    Returns:
        This run's result, and what does the same on new inputs, without gradients.

    Raises:
        CannotRecordError: the function ran, but it cannot be recorded.
    """
    result: Tensors = []
    looks = _LooksAtValues()

    def run(arguments: Tensors) -> Tensors:
        with looks:
            result.extend(function(arguments))
        return result

    # The function runs to its end whatever it does; what speaks against the recording is said afterwards.
    written = _Source(make_fx(run, tracing_mode="real", _error_on_data_dependent_ops=False)(inputs))
    if looks.found:
        raise CannotRecordError(looks.found)
    try:
        program = torch.jit.CompilationUnit(written.text()).program
    except RuntimeError as error:
        raise CannotRecordError(str(error).strip().split("\n")[0]) from error
    kept = list(program.graph.nodes())
    results = {value.debugName().partition(".")[0] for node in kept for value in node.outputs()}
    without_result = Counter(node.kind() for node in kept)
    for operation, result_name in written.changes:
        if result_name:
            is_lost = result_name not in results
        else:
            is_lost = without_result[operation] < written.without_result[operation]
        if is_lost:
            raise CannotRecordError(operation)

    constants, lists = written.constants, written.lists
    owner = _Owner(constants, lists)  # so that a program beside a busy thread does not wait for Python's lock

    def again(new: Tensors, owner: _Owner = owner) -> Tensors:
        # What TorchScript's optimiser would make of it rounds in another way. Inference mode spares each operation the
        # look at whether autograd is to hear of it, a tenth of an update's time.
        with torch.inference_mode(), torch.jit.optimized_execution(False):
            return program(new, constants, lists)[0]

    return result, again


class RecordedByShape:
    """A function of tensors that records itself for each shape of its inputs; what cannot be recorded runs as it is.

    Args:
        function: as for `record`, without gradients or side effects.
    """

    def __init__(self, function: Callable[[Tensors], Tensors]):
        self._function = function
        self.recorded = 0  # shapes
        self._programs: dict[Any, Callable[[Tensors], Tensors]] = {}

    def __deepcopy__(self, memo: Any) -> "RecordedByShape":
        return RecordedByShape(copy.deepcopy(self._function, memo))  # recordings read the tensors that they are of

    def __call__(self, inputs: Tensors) -> Tensors:
        key = tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in inputs)
        if key in self._programs:
            return self._programs[key](inputs)
        try:
            result, self._programs[key] = record(self._function, inputs)
            self.recorded += 1
        except CannotRecordError:
            self._programs[key] = self._function
            return self._function(inputs)
        return result


class _LooksAtValues(TorchDispatchMode):
    """Notes an operation that Python learns a tensor's value from, or how many of its elements are something.

    A recording would repeat what was learnt in this run. Where such numbers stay in tensors, `nonzero` and an index of
    whole numbers are fine.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found = ""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.data_dependent_output in function.tags:
            self.found = function.name()
        if torch.Tag.dynamic_output_shape in function.tags and not _of_known_shape(function, args):
            self.found = function.name()
        return function(*args, **(kwargs or {}))


def _of_known_shape(function: Any, args: Any) -> bool:
    if function is torch.ops.aten.index.Tensor:
        return all(index is None or index.dtype not in (torch.bool, torch.uint8) for index in args[1])
    return function is torch.ops.aten.nonzero.default


_WRITTEN_AS_THEY_ARE = (str, bool, int, float, torch.dtype, torch.layout, torch.memory_format)
_aten = torch.ops.aten
_TO_SIZES = {_aten.expand.default, _aten.view.default, _aten._unsafe_view.default}  # which stand in the recording
_VIEWS = {_aten.transpose.int, _aten.unsqueeze.default, _aten.select.int}
_TAKES_A_NUMBER = {  # and rounds it to float32 before anything else; a division would multiply by the reciprocal
    *(_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.add_.Tensor, _aten.sub_.Tensor, _aten.mul_.Tensor),
}


class _Owner(torch.jit.ScriptModule):
    """Holds tensors as TorchScript does: to let go of the last hold on one that Python knows takes Python's lock."""

    def __init__(self, tensors: Tensors, lists: list[Tensors]):
        super().__init__()
        self.tensors = torch.jit.Attribute(tensors, list[torch.Tensor])
        self.lists = torch.jit.Attribute(lists, list[Tensors])


class _Source:
    """A graph as TorchScript's source of `program(inputs, constants, lists)`, which hands back its inputs: as with an
    `_Owner`, it lets go of none of them.

    Tensors from outside come in `constants`. Lists of them come whole, in `lists`: to a list that the program makes
    itself TorchScript thinks that nothing outside holds on, and leaves out what changes it.
    """

    def __init__(self, graph: GraphModule):
        self.constants: Tensors = []
        self.lists: list[Tensors] = []
        # Calls that change a tensor from outside, and what their result is called.
        self.changes: list[tuple[str, str]] = []
        self.without_result: Counter[str] = Counter()  # calls that have none, by operation
        self._lines: list[str] = []
        self._names: dict[Node, str] = {}
        self._place_of: dict[Any, int] = {}  # of a constant, by its name in the graph
        self._outside: set[Node] = set()  # tensors from outside, and views of them
        self._views: dict[Any, str] = {}  # the name of each view, by how it was made
        self._numbers: dict[float, int] = {}  # the place among the constants of each number
        nodes = list(graph.graph.nodes)
        for i, node in enumerate(node for node in nodes if node.op == "placeholder"):
            self._names[node] = f"inputs[{i}]"
            self._outside.add(node)
        for node in nodes:
            if node.op == "get_attr":
                self._add_constant(node, getattr(graph, node.target))
            elif node.op == "call_function":
                self._add_call(node)
            elif node.op == "output":
                self._lines.append(f"return {self._argument(list(node.args[0]))}, inputs")

    def text(self) -> str:
        arguments = "inputs: List[Tensor], constants: List[Tensor], lists: List[List[Tensor]]"
        head = f"def program({arguments}) -> Tuple[List[Tensor], List[Tensor]]:"
        return "\n    ".join([head, *self._lines]) + "\n"

    def _add_constant(self, node: Node, tensor: Any) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise CannotRecordError(f"an argument of type {type(tensor).__name__}")
        if node.target not in self._place_of:
            self._place_of[node.target] = len(self.constants)
            self.constants.append(tensor.detach())
        self._names[node] = f"constants[{self._place_of[node.target]}]"
        self._outside.add(node)

    def _add_call(self, node: Node) -> None:
        target: Any = node.target
        if target is torch.ops.aten.detach.default:  # without gradients there is nothing to detach from
            self._names[node] = self._argument(node.args[0])
            self._follow(node)
            return
        if self._leads_nowhere(node):
            return
        name = self._names[node] = f"v{len(self._names)}"
        if not isinstance(target, torch._ops.OpOverload):  # one of an operation's several results
            self._lines.append(f"{name} = {self._argument(node.args[0])}[{node.args[1]}]")
            self._follow(node)
            return
        schema = target._schema
        types = {argument.name: argument.type for argument in schema.arguments}
        positional = dict(zip(types, node.args, strict=False))
        arguments = [self._argument(value, types[key]) for key, value in positional.items()]
        arguments += [f"{key}={self._argument(value, types[key])}" for key, value in node.kwargs.items()]
        given = positional | node.kwargs
        if target in _TAKES_A_NUMBER:
            arguments[1] = self._number(node, arguments[1])
        call = f"torch.ops.{schema.name.replace('::', '.')}({', '.join(arguments)})"
        self._lines.append(f"{name} = {call}" if schema.returns else call)
        self._note_aliases(node, schema, given)

    def _leads_nowhere(self, node: Node) -> bool:
        """Whether it is a view that is its argument over again, or another view's twin; it gets that one's name."""
        if node.target not in _TO_SIZES | _VIEWS:
            return False
        before: Any = node.args[0]
        call = node.target, self._names[before], str(node.args[1:]), str(node.kwargs)
        idle = node.target in _TO_SIZES and self._layout(before) == self._layout(node)
        twin = self._names[before] if idle else self._views.get(call)
        if twin is None:
            self._views[call] = f"v{len(self._names)}"  # which it is about to be called
            return False
        self._names[node] = twin
        self._follow(node)
        return True

    def _layout(self, node: Any) -> tuple[Any, Any, torch.dtype]:
        """Of the tensor that a node stands for: shape, strides, type."""
        if node.op == "get_attr":
            tensor = self.constants[self._place_of[node.target]]
            return tensor.shape, tensor.stride(), tensor.dtype
        known = node.meta["tensor_meta"]
        return known.shape, known.stride, known.dtype

    def _number(self, node: Node, written: str) -> str:
        """A Python number beside a float32 tensor, as a tensor: TorchScript would make and cast one in every run."""
        value: Any = node.args[1]
        shape, _, dtype = self._layout(node.args[0])
        if type(value) not in (int, float) or dtype != torch.float32 or not shape:
            return written
        if value not in self._numbers:
            self._numbers[value] = len(self.constants)
            self.constants.append(torch.tensor(value, dtype=torch.float32))
        return f"constants[{self._numbers[value]}]"

    def _follow(self, node: Node) -> None:
        if node.args[0] in self._outside:
            self._outside.add(node)

    def _note_aliases(self, node: Node, schema: Any, given: dict[str, Any]) -> None:
        self.without_result[schema.name] += not schema.returns
        for argument in schema.arguments:
            value = given.get(argument.name)
            values = value if isinstance(value, list | tuple) else [value]
            if argument.alias_info and any(isinstance(one, Node) and one in self._outside for one in values):
                self._outside.add(node)  # a view, or what was changed
                if argument.alias_info.is_write:
                    self.changes.append((schema.name, self._names[node] if schema.returns else ""))

    def _argument(self, value: Any, kind: Any = None) -> str:
        if isinstance(value, Node):
            return self._names[value]
        if isinstance(value, list | tuple):
            return self._list(value, kind)
        if isinstance(value, torch.device):
            return f'torch.device("{value}")'
        if value is None or isinstance(value, _WRITTEN_AS_THEY_ARE):
            return repr(value)
        raise CannotRecordError(f"an argument of type {type(value).__name__}")

    def _list(self, values: Sequence[Any], kind: Any) -> str:
        if values and all(isinstance(value, Node) and value.op == "get_attr" for value in values):
            self.lists.append([self.constants[self._place_of[value.target]] for value in values])
            return f"lists[{len(self.lists) - 1}]"
        if not values:
            return f"torch.jit.annotate({str(kind).replace('SymInt', 'int')}, [])"
        return f"[{', '.join(map(self._argument, values))}]"
