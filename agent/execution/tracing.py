"""Traces a function's tensor operations as a program that TorchScript's interpreter replays without Python.

At 256 units, half of an update on a CPU is spent between operations: in Python, modules, autograd's graph and engine. A
traced program has none of this. It runs the same operations in the same order, so its results are bit-identical.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

Tensors = list[Tensor]
Function = Callable[[Tensors], Tensors]


class CannotTraceError(Exception):
    """An operation that a traced program cannot hold; the message names it."""


class DispatchMode(TorchDispatchMode):
    """A TorchDispatchMode, which sees every operation, whose first one does not import torch._dynamo for a second."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def trace(function: Function, inputs: Tensors) -> tuple[Tensors, Function]:
    """Runs a function and traces its operations.

    Args:
        function: takes the inputs; may also read and change, in place, other tensors that keep their memory. Numbers
            and branches in Python are frozen as they are in this run.
        inputs: with the shapes, dtypes and strides that all later inputs have.

    Random numbers that the function draws from a generator are drawn anew before each replay, in the same order.

    Returns:
        The result of this run, and a function that does the same to new inputs, without gradients.

    Raises:
        CannotTraceError: the function ran to its end, but it cannot be traced.
    """
    # Run the function while a dispatch mode writes each operation as a line of TorchScript.
    writer = _SourceWriter(inputs)
    with writer:
        result = function(inputs)
    try:
        program = torch.jit.CompilationUnit(writer.source(result)).program
    except RuntimeError as error:
        raise CannotTraceError(str(error).strip().partition("\n")[0]) from error
    constants, lists, draws = writer.constants, writer.lists, writer.draws
    owner = _Owner(constants, lists)  # so that a program does not wait for the GIL beside a busy thread

    def replay(new_inputs: Tensors, owner: _Owner = owner) -> Tensors:
        # TorchScript's optimiser would produce operations that round differently. Inference mode skips each operation's
        # check whether autograd has to record it, a tenth of an update's time.
        with torch.inference_mode(), torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return program([*new_inputs, *(draw() for draw in draws)], constants, lists)[0]

    return result, replay


class TracedByShape:
    """Traces a function without side effects, once per shape of its inputs; runs it in Python if it cannot."""

    def __init__(self, function: Function):
        self._function = function
        self.num_traced = 0
        self._programs: dict[Any, Function] = {}

    def __deepcopy__(self, memo: Any) -> "TracedByShape":
        return TracedByShape(copy.deepcopy(self._function, memo))  # a program reads the original's tensors

    def __call__(self, inputs: Tensors) -> Tensors:
        key = tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in inputs)
        if key in self._programs:
            return self._programs[key](inputs)
        try:
            result, self._programs[key] = trace(self._function, inputs)
            self.num_traced += 1
        except CannotTraceError:
            self._programs[key] = self._function
            return self._function(inputs)
        return result


class _Owner(torch.jit.ScriptModule):
    """Keeps tensors alive from TorchScript: releasing the last reference that Python knows takes the GIL."""

    __annotations__ = {}  # torch writes into it, and since Python 3.14 a class has none by default

    def __init__(self, tensors: Tensors, lists: list[Tensors]):
        super().__init__()
        self.tensors = torch.jit.Attribute(tensors, list[Tensor])
        self.lists = torch.jit.Attribute(lists, list[Tensors])


_LITERALS = (str, bool, int, float, torch.dtype, torch.layout, torch.memory_format)
_aten = torch.ops.aten
_TO_SIZES = {_aten.expand.default, _aten.view.default, _aten._unsafe_view.default}  # views of sizes fixed in the source
_VIEWS = {_aten.transpose.int, _aten.unsqueeze.default, _aten.select.int}
_TAKES_A_NUMBER = {  # and rounds it to float32 first; division is left out, as it multiplies by the reciprocal
    *(_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.add_.Tensor, _aten.sub_.Tensor, _aten.mul_.Tensor)
}


class _SourceWriter(DispatchMode):
    """Writes the operations that run under it as the TorchScript of `program(inputs, constants, lists)`.

    Tensors from outside are passed in `constants`, and lists of them in `lists`: TorchScript assumes that a list built
    by the program is read nowhere else, and removes operations that change its tensors. The program returns its inputs
    along with the results, so that it does not release them (see _Owner).

    An operation that cannot be written does not stop the function, part of which has already run.
    """

    def __init__(self, inputs: Tensors):
        super().__init__()
        self.constants: Tensors = []
        self.lists: list[Tensors] = []
        self.draws: list[Callable[[], Tensor]] = []  # of random numbers, the inputs after the function's own
        self._obstacle = ""  # why the function cannot be traced
        self._lines: list[str] = []
        self._names: Any = WeakTensorKeyDictionary()  # tensor -> its name in the source
        self._views: dict[str, str] = {}  # the call that makes a view -> the view's name
        self._numbers: dict[float, str] = {}  # number -> the name of the constant that holds it
        self._num_inputs = len(inputs)
        for i, tensor in enumerate(inputs):
            self._names[tensor] = f"inputs[{i}]"

    def source(self, result: Tensors) -> str:
        """Returns the source of the program that returns `result`."""
        if self._obstacle:
            raise CannotTraceError(self._obstacle)
        arguments = "inputs: List[Tensor], constants: List[Tensor], lists: List[List[Tensor]]"
        head = f"def program({arguments}) -> Tuple[List[Tensor], List[Tensor]]:"
        last = f"return [{', '.join(map(self._name, result))}], inputs"
        return "\n    ".join([head, *self._lines, last]) + "\n"

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("generator") is not None and not any(isinstance(value, Tensor) for value in args):
            self.draws.append(partial(function, *args, **kwargs))
            result = self.draws[-1]()
            self._names[result] = f"inputs[{self._num_inputs + len(self.draws) - 1}]"
            return result
        if _depends_on_data(function, args):
            self._obstacle = function.name()
            if torch.Tag.data_dependent_output in function.tags:
                self._obstacle = f"a tensor's value that Python reads (if, float, item: {function.name()})"
        # Write the call before it runs: an in-place operation changes its arguments.
        try:
            call = self._call(function, args, kwargs)
        except CannotTraceError as error:
            self._obstacle, call = str(error), ""
        result = function(*args, **kwargs)
        if call:
            self._add(function, args, result, call)
        return result

    def _call(self, function: Any, args: Any, kwargs: Any) -> str:
        schema = function._schema
        types = {argument.name: argument.type for argument in schema.arguments}
        arguments = [self._argument(value, kind) for value, kind in zip(args, types.values(), strict=False)]
        # A list that the program builds, of tensors from outside: see the class.
        for argument, text in zip(schema.arguments, arguments, strict=False):
            if argument.alias_info and argument.alias_info.is_write and text.startswith("[") and "constants[" in text:
                raise CannotTraceError(schema.name)
        arguments += [f"{key}={self._argument(value, types[key])}" for key, value in kwargs.items()]
        if function in _TAKES_A_NUMBER:
            arguments[1] = self._number(args, arguments[1])
        name = schema.name.replace("::", ".")
        if function is _aten.view.dtype:  # which TorchScript does not find: it takes any second argument for sizes
            name, arguments[1] = "aten.view_copy", f"dtype={arguments[1]}"
        return f"torch.ops.{name}({', '.join(arguments)})"

    def _add(self, function: Any, args: Any, result: Any, call: str) -> None:
        """Adds the line of a call and names its results."""
        # Three kinds of calls need no line: their result gets the name of an existing tensor.
        if function is _aten.detach.default:  # without gradients, detaching changes nothing
            self._names[result] = self._name(args[0])
            return
        if function in _TO_SIZES | _VIEWS:
            unchanged = function in _TO_SIZES and _layout(args[0]) == _layout(result)
            name_of_equal = self._name(args[0]) if unchanged else self._views.get(call)
            if name_of_equal is not None:
                self._names[result] = name_of_equal
                return
        name = f"v{len(self._lines)}"
        self._views[call] = name
        self._lines.append(f"{name} = {call}" if function._schema.returns else call)
        is_tuple = isinstance(result, list | tuple)
        for i, tensor in enumerate(result if is_tuple else [result]):
            if isinstance(tensor, Tensor):
                self._names[tensor] = f"{name}[{i}]" if is_tuple else name

    def _name(self, tensor: Tensor) -> str:
        if tensor not in self._names:
            self._names[tensor] = self._constant(tensor.detach())
        return self._names[tensor]

    def _constant(self, tensor: Tensor) -> str:
        self.constants.append(tensor)
        return f"constants[{len(self.constants) - 1}]"

    def _number(self, args: Any, literal: str) -> str:
        """Returns a constant for a number beside a float32 tensor: TorchScript would make and cast one in every run."""
        tensor, value = args
        if type(value) not in (int, float) or tensor.dtype != torch.float32 or not tensor.shape:
            return literal
        if value not in self._numbers:
            self._numbers[value] = self._constant(torch.tensor(value, dtype=torch.float32))
        return self._numbers[value]

    def _argument(self, value: Any, kind: Any = None) -> str:
        if isinstance(value, Tensor):
            return self._name(value)
        if isinstance(value, list | tuple):
            names = [self._argument(each) for each in value]
            if names and all(name.startswith("constants") for name in names):
                self.lists.append([self.constants[int(name[len("constants[") : -1])] for name in names])
                return f"lists[{len(self.lists) - 1}]"
            if not names:
                return f"torch.jit.annotate({str(kind).replace('SymInt', 'int')}, [])"
            return f"[{', '.join(names)}]"
        if isinstance(value, torch.device):
            return f'torch.device("{value}")'
        if value is None or isinstance(value, _LITERALS):
            return repr(value)
        raise CannotTraceError(f"an argument of type {type(value).__name__}")


def _layout(tensor: Tensor) -> tuple[Any, Any, torch.dtype]:
    return tensor.shape, tensor.stride(), tensor.dtype


def _depends_on_data(function: Any, args: Any) -> bool:
    """Returns whether an operation returns a tensor's value to Python, or a result whose shape depends on values.

    A traced program would repeat the value of the traced run. `nonzero` and indexing by integer tensors are fine:
    their shapes stay in tensors.
    """
    if torch.Tag.data_dependent_output in function.tags:
        return True
    if torch.Tag.dynamic_output_shape not in function.tags or function is _aten.nonzero.default:
        return False
    if function is not _aten.index.Tensor:
        return True
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
