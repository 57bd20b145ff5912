"""A function's tensor operations, recorded once and run again by TorchScript's interpreter.

At 256 units half of an update on a CPU is what leads from one operation to the next: Python, modules, autograd's graph
and engine. A recording has none of it left. It makes the same operations in the same order, so it gives the same bytes.
"""

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

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
    source = _Source(inputs)
    with source:
        result = function(inputs)
    text = source.text(result)
    try:
        program = torch.jit.CompilationUnit(text).program
    except RuntimeError as error:
        raise CannotRecordError(str(error).strip().split("\n")[0]) from error
    kept = list(program.graph.nodes())
    results = {value.debugName().partition(".")[0] for node in kept for value in node.outputs()}
    without_result = Counter(node.kind() for node in kept)
    for operation, result_name in source.changes:
        if result_name:
            is_lost = result_name not in results
        else:
            is_lost = without_result[operation] < source.without_result[operation]
        if is_lost:
            raise CannotRecordError(operation)

    constants, lists = source.constants, source.lists
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


class _Owner(torch.jit.ScriptModule):
    """Holds tensors as TorchScript does: to let go of the last hold on one that Python knows takes Python's lock."""

    __annotations__ = {}  # torch writes into it; since Python 3.14 a class has none until it is asked

    def __init__(self, tensors: Tensors, lists: list[Tensors]):
        super().__init__()
        self.tensors = torch.jit.Attribute(tensors, list[torch.Tensor])
        self.lists = torch.jit.Attribute(lists, list[Tensors])


_WRITTEN_AS_THEY_ARE = (str, bool, int, float, torch.dtype, torch.layout, torch.memory_format)
_aten = torch.ops.aten
_TO_SIZES = {_aten.expand.default, _aten.view.default, _aten._unsafe_view.default}  # which stand in the recording
_VIEWS = {_aten.transpose.int, _aten.unsqueeze.default, _aten.select.int}
_TAKES_A_NUMBER = {  # and rounds it to float32 before anything else; a division would multiply by the reciprocal
    *(_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.add_.Tensor, _aten.sub_.Tensor, _aten.mul_.Tensor),
}


class _Source(TorchDispatchMode):
    """Writes the operations that run under it as TorchScript's source of `program(inputs, constants, lists)`, which
    hands back its inputs: as with an `_Owner`, it lets go of none of them.

    Tensors from outside come in `constants`. Lists of them come whole, in `lists`: to a list that the program makes
    itself TorchScript thinks that nothing outside holds on, and leaves out what changes it.

    An operation that cannot be written does not stop the function, which has done half of its work by then.
    """

    def __init__(self, inputs: Tensors):
        super().__init__()
        self.constants: Tensors = []
        self.lists: list[Tensors] = []
        # Calls that change a tensor from outside, and what their result is called.
        self.changes: list[tuple[str, str]] = []
        self.without_result: Counter[str] = Counter()  # calls that have none, by operation
        self._against = ""  # what speaks against a recording
        self._lines: list[str] = []
        self._names: Any = WeakTensorKeyDictionary()  # of tensors
        self._outside: Any = WeakTensorKeyDictionary()  # those from outside, and views of them
        self._views: dict[Any, str] = {}  # the name of each view, by how it was made
        self._numbers: dict[float, str] = {}  # what each is called as a constant
        for i, tensor in enumerate(inputs):
            self._names[tensor] = f"inputs[{i}]"
            self._outside[tensor] = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to tell torch.compile to look away, two seconds would be spent on importing it

    def text(self, result: Tensors) -> str:
        """Of the whole function, which returns `result`.

        Raises:
            CannotRecordError: an operation cannot be written.
        """
        if self._against:
            raise CannotRecordError(self._against)
        arguments = "inputs: List[Tensor], constants: List[Tensor], lists: List[List[Tensor]]"
        head = f"def program({arguments}) -> Tuple[List[Tensor], List[Tensor]]:"
        last = f"return [{', '.join(map(self._name, result))}], inputs"
        return "\n    ".join([head, *self._lines, last]) + "\n"

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _tells_python(function, args):
            self._against = function.name()
        try:
            call = self._written(function, args, kwargs)
        except CannotRecordError as error:
            self._against, call = str(error), ""
        result = function(*args, **kwargs)
        if call:
            self._note(function, args, kwargs, result, call)
        return result

    def _written(self, function: Any, args: Any, kwargs: Any) -> str:
        """A call, with its arguments as they are before it."""
        schema = function._schema
        types = {argument.name: argument.type for argument in schema.arguments}
        arguments = [self._argument(value, kind) for value, kind in zip(args, types.values(), strict=False)]
        arguments += [f"{key}={self._argument(value, types[key])}" for key, value in kwargs.items()]
        if function in _TAKES_A_NUMBER:
            arguments[1] = self._number(args, arguments[1])
        return f"torch.ops.{schema.name.replace('::', '.')}({', '.join(arguments)})"

    def _note(self, function: Any, args: Any, kwargs: Any, result: Any, call: str) -> None:
        if function is _aten.detach.default:  # without gradients there is nothing to detach from
            self._is_over_again(args[0], result)
            return
        if function in _TO_SIZES | _VIEWS:
            idle = function in _TO_SIZES and _layout(args[0]) == _layout(result)
            twin = self._name(args[0]) if idle else self._views.get(call)
            if twin is not None:
                self._is_over_again(args[0], result, twin)
                return
        schema = function._schema
        name = f"v{len(self._lines)}"
        self._views[call] = name
        self._lines.append(f"{name} = {call}" if schema.returns else call)
        several = isinstance(result, list | tuple)
        results = list(enumerate(result)) if several else [(0, result)]
        for i, tensor in results:
            if isinstance(tensor, torch.Tensor):
                self._names[tensor] = f"{name}[{i}]" if several else name
        self._note_aliases(schema, args, kwargs, [tensor for _, tensor in results], name)

    def _is_over_again(self, before: torch.Tensor, result: torch.Tensor, name: str | None = None) -> None:
        """A view that changes nothing, or has been made already, gets that one's name."""
        self._names[result] = name or self._name(before)
        if before in self._outside:
            self._outside[result] = True

    def _note_aliases(self, schema: Any, args: Any, kwargs: Any, results: list[Any], name: str) -> None:
        self.without_result[schema.name] += not schema.returns
        for i, argument in enumerate(schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            values = value if isinstance(value, list | tuple) else [value]
            if argument.alias_info and any(isinstance(one, torch.Tensor) and one in self._outside for one in values):
                for tensor in results:  # views, or what was changed
                    if isinstance(tensor, torch.Tensor):
                        self._outside[tensor] = True
                if argument.alias_info.is_write:
                    self.changes.append((schema.name, name if schema.returns else ""))

    def _name(self, tensor: torch.Tensor) -> str:
        if tensor not in self._names:
            self._names[tensor] = self._constant(tensor.detach())
            self._outside[tensor] = True
        return self._names[tensor]

    def _constant(self, tensor: torch.Tensor) -> str:
        self.constants.append(tensor)
        return f"constants[{len(self.constants) - 1}]"

    def _number(self, args: Any, written: str) -> str:
        """A Python number beside a float32 tensor, as a tensor: TorchScript would make and cast one in every run."""
        tensor, value = args
        if type(value) not in (int, float) or tensor.dtype != torch.float32 or not tensor.shape:
            return written
        if value not in self._numbers:
            self._numbers[value] = self._constant(torch.tensor(value, dtype=torch.float32))
        return self._numbers[value]

    def _argument(self, value: Any, kind: Any = None) -> str:
        if isinstance(value, torch.Tensor):
            return self._name(value)
        if isinstance(value, list | tuple):
            return self._list(value, kind)
        if isinstance(value, torch.device):
            return f'torch.device("{value}")'
        if value is None or isinstance(value, _WRITTEN_AS_THEY_ARE):
            return repr(value)
        raise CannotRecordError(f"an argument of type {type(value).__name__}")

    def _list(self, values: Sequence[Any], kind: Any) -> str:
        names = [self._argument(value) for value in values]
        if names and all(name.startswith("constants") for name in names):
            self.lists.append([self.constants[int(name[len("constants[") : -1])] for name in names])
            return f"lists[{len(self.lists) - 1}]"
        if not names:
            return f"torch.jit.annotate({str(kind).replace('SymInt', 'int')}, [])"
        return f"[{', '.join(names)}]"


def _layout(tensor: torch.Tensor) -> tuple[Any, Any, torch.dtype]:
    return tensor.shape, tensor.stride(), tensor.dtype


def _tells_python(function: Any, args: Any) -> bool:
    """Whether Python learns a tensor's value from an operation, or how many of its elements are something.

    A recording would repeat what was learnt in this run. Where such numbers stay in tensors, `nonzero` and an index of
    whole numbers are fine.
    """
    if torch.Tag.data_dependent_output in function.tags:
        return True
    if torch.Tag.dynamic_output_shape not in function.tags or function is _aten.nonzero.default:
        return False
    if function is not _aten.index.Tensor:
        return True
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
