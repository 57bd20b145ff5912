"""The project's classes without what takes seconds to import: torch, gymnasium and the like have stand-ins.

A key's type stands in the signature of the class that takes it, and most of these classes stand on torch. Their
signatures can be read without: within `stand_ins()`, a module of this project that imports a package which is not
imported yet gets a stand-in for it. Nothing can be computed with one; where that would be needed, or where the answer
would depend on what stands behind it, `LaterError` ends the attempt. Afterwards all of it is forgotten, and the modules
are imported again as they are.
"""

import sys
from abc import ABCMeta
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from pydantic_core import core_schema

ROOT = Path(__file__).resolve().parents[1]


class LaterError(BaseException):
    """It cannot be known without what a stand-in stands for. No `except Exception` takes it for an error of its own."""


_under_way: list[str] = []  # modules of this project that are being imported


def _later(*_: Any, **__: Any) -> Any:
    raise LaterError


class _Kind(ABCMeta):
    """The type of stand-ins: a class that has every attribute, and can be a base, a hint, a decorator or a default."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "_is_stand_in" not in vars(cls):  # a class of this project, of which one is made
            return super().__call__(*args, **kwargs)
        if not _under_way or cls.__name__.startswith("register"):  # a result is asked for, or an environment made known
            raise LaterError
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else cls  # as a decorator

    def __getitem__(cls, key: Any) -> Any:
        return cls


# What a value is needed for.
for _name in ("bool", "len", "iter", "int", "float", "index", "lt", "le", "gt", "ge", "neg", "enter", "exit"):
    setattr(_Kind, f"__{_name}__", _later)
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "xor", "lshift", "rshift", "matmul"):
    setattr(_Kind, f"__{_name}__", _later)
    setattr(_Kind, f"__r{_name}__", _later)


def _init(self: Any, *args: "_later()", **kwargs: Any) -> None:  # type: ignore[valid-type]
    """Which parameters it has is asked for with its hints, and one of them cannot be read."""


def _schema(cls: Any, source: Any, handler: Any) -> Any:
    """As a hint, it takes whatever is given: the type itself, or a union that it is the name of, may take it."""
    return core_schema.any_schema()


def _unknown_base(cls: Any, **_: Any) -> None:
    """A class on a stand-in may have any method and take any parameter: it cannot be checked."""
    cls.__init__ = _init


# The bases that are known, and what the check asks of a network that they bring. Any other base means `LaterError`.
_MODULES = ("Module", "Sequential")
_OF_MODULES = dict.fromkeys(("__call__", "forward", "parameters"), _later)


def _stand_in(name: str) -> Any:
    members = {"_is_stand_in": True, "__init__": _init, "__get_pydantic_core_schema__": classmethod(_schema)}
    return _Kind(name, (), members | (_OF_MODULES if name in _MODULES else {"__init_subclass__": _unknown_base}))


class _Package(ModuleType):
    """A package of which every name is a stand-in, or a package itself where it is imported as one."""

    def __getattr__(self, name: str) -> Any:
        return _later() if name.startswith("__") else _stand_in(name)  # its version, say


class _Finder(MetaPathFinder, Loader):
    """Finds a stand-in for what a module of this project imports, unless it is Python's, the project's or there."""

    def __init__(self) -> None:
        self._there = {name.partition(".")[0] for name in sys.modules} | sys.stdlib_module_names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        root = name.partition(".")[0]
        if is_ours(root):
            return _ours(name, path)
        if root in self._there or not (isinstance(sys.modules.get(root), _Package) or _we_ask()):
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        package = _Package(spec.name)
        package.__path__ = []
        return package

    def exec_module(self, module: ModuleType) -> None:
        pass


def _ours(name: str, path: Any) -> ModuleSpec | None:
    """A module of this project; if it fails with stand-ins, that says nothing."""
    spec = PathFinder.find_spec(name, path)
    if spec is not None and spec.loader is not None:
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            _under_way.append(name)
            try:
                run(module)
            except Exception as error:
                raise LaterError from error
            finally:
                _under_way.pop()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec


def _we_ask() -> bool:
    """Whether an import that is under way was begun in a module of this project."""
    frame: FrameType | None = sys._getframe(1)
    asking = ""
    while frame is not None:
        asking = str(frame.f_globals.get("__name__"))
        if frame.f_globals is not globals() and asking.partition(".")[0] not in ("importlib", "_frozen_importlib"):
            break
        frame = frame.f_back
    return is_ours(asking.partition(".")[0])


def is_ours(name: str) -> bool:
    """Whether a package or a module lies in this project's folder."""
    return (ROOT / name / "__init__.py").is_file() or (ROOT / f"{name}.py").is_file()


@contextmanager
def stand_ins() -> Iterator[None]:
    """Within it, what is imported of this project is imported without its packages; afterwards it is not imported.

    Raises:
        LaterError: within, where something cannot be known so.
    """
    before = dict(sys.modules)
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name, module in list(sys.modules.items()):
            if name not in before and (isinstance(module, _Package) or is_ours(name.partition(".")[0])):
                del sys.modules[name]
                parent, _, child = name.rpartition(".")
                if vars(sys.modules.get(parent, object)).get(child) is module:
                    delattr(sys.modules[parent], child)
