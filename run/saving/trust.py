"""What a saved configuration may name: this project's classes, each in its place, and what the user trusts: classes of
their own, and files and data outside of the folder.

A run's folder may come from someone else, and Hydra calls whatever a `_target_` names. So every node of a saved
configuration, at any depth, is checked before anything in it is imported or built.
"""

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from utils import UserError, import_failure, leaves, one_line

ROOT = Path(__file__).resolve().parents[2]
# The top-level keys of nodes, and the modules whose classes may be named there. Another class of this project, such as
# run.saving.folder.Lock, could be made to write anywhere.
PLACES: dict[str, tuple[str, ...]] = {
    "agent": ("agent",),
    "reward_scale": ("agent",),
    "replay_buffer": ("replay_buffer", "replay"),
    "logger": ("logger", "sinks"),
    "evaluator": ("run.evaluation.evaluator",),
}
HYDRA_KEYS = ("_target_", "_partial_")  # the only keys of Hydra that this project's configurations use


class Node(NamedTuple):
    """A node of a configuration.

    Attributes:
        target: the value of its `_target_`, which may be anything.
        is_in_list: whether it is in a list, at any level.
        owners: the targets of the enclosing nodes.
    """

    key: str
    target: Any
    is_in_list: bool
    owners: tuple[Any, ...]

    @property
    def place(self) -> tuple[str, ...]:
        """The modules whose classes may be named here."""
        return PLACES.get(self.key.partition(".")[0], ())


def names(text: str) -> tuple[str, ...]:
    """Parses the value of `trust=`: packages, modules, or paths, which have a slash, separated by commas.

    Raises:
        UserError: for anything else, and for modules of Python's standard library, whose classes can do anything.
    """
    parts = tuple(name.strip() for name in text.split(","))
    if any("/" not in name and (not _is_dotted(name) or _is_standard(name)) for name in parts):
        raise UserError(
            f"trust={text}: the name of a package or a module of your own goes here, or a path with a slash"
        )
    return parts


def add_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--trust`, whose values `given` parses."""
    trust_help = (
        "a package of your own whose classes the run may name; repeat it for several, or separate them by commas"
    )
    parser.add_argument("--trust", action="append", default=[], metavar="PACKAGE", help=trust_help)


def given(arguments: argparse.Namespace) -> list[str]:
    """Returns the names that `--trust` was given; raises UserError as `names`."""
    return [name for text in arguments.trust for name in names(text)]


def named_by(config: dict[str, Any]) -> tuple[str, ...]:
    """Returns the names in the user's own configuration: targets and the environment's module, unless they are this
    project's, and the paths in `env_kwargs`."""
    targets = {str(node.target) for node in _nodes(config)}
    module, separator, _ = str(config.get("env")).partition(":")
    if separator:
        targets.add(module)
    classes = sorted(name for name in targets if not _is_ours(name.rpartition(".")[0]) and not _is_ours(name))
    return (*classes, *(path for _, path in _paths(config)))


def refuse_standard(env: str) -> None:
    """Raises UserError if an environment's module has the name of one of Python's, which no saved run may name."""
    module, colon, _ = env.partition(":")
    if colon and _is_standard(module):
        raise UserError(f"env={env}: Python has a module {module}, so a saved run could not name yours; rename it")


def require(config: dict[str, Any], path: Path, trusted: Iterable[str] = ()) -> None:
    """Checks what a saved configuration would import and call.

    Args:
        path: the configuration's file, for errors.
        trusted: dotted names of packages, modules and classes that may be imported, and called with any arguments; and
            paths outside of the file's folder that `env_kwargs` may name.

    Raises:
        UserError: for anything but a class of this project in its place, or a trusted class or path.
    """
    trusted = tuple(trusted)
    _require_keys(config, path)
    env = config.get("env")
    if isinstance(env, str) and ":" in env:
        module = env.partition(":")[0]
        if env.count(":") > 1 or not _within(module, trusted):
            raise UserError(f"{path}: env={one_line(env)}: {_refusal(module)}")
    # All names are checked first, as importing one module runs its code.
    nodes = list(_nodes(config))
    for node in nodes:
        _require_name(node, path, trusted)
    for key, name in _paths(config):
        if not may_read(name, path.parent, trusted):
            raise UserError(f"{path}: {key}={one_line(name)}: outside of this folder, so it is not read; {_hint(name)}")
    for node in nodes:
        _require_class(node, path, trusted)


def may_read(name: str, folder: Path, trusted: Iterable[str]) -> bool:
    """Returns whether a path or data set of a saved configuration may be read: it is trusted, or in the `folder`."""
    if name in trusted:
        return True
    path = Path(os.path.realpath(name))
    return path in (Path(os.path.realpath(own)) for own in trusted if "/" in own) or (
        Path(name).is_absolute() and path.is_relative_to(os.path.realpath(folder))
    )


def _paths(config: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns dotted key and value of every path in `env_kwargs`: a robot's XML, for example."""
    texts = [leaf for leaf in leaves(config.get("env_kwargs"), "env_kwargs") if isinstance(leaf[1], str)]
    return [(key, text) for key, text in texts if "/" in text or text.startswith("~")]


def _require_keys(value: Any, path: Path, key: str = "") -> None:
    """Refuses Hydra's other keys, such as `_args_` and `_recursive_`: they change what is called, and how."""
    for child_key, name, child in _children(value, key):
        if isinstance(value, dict) and not isinstance(name, str):
            raise UserError(f"{path}: {child_key}: a key has to be a string")
        if isinstance(name, str) and name.startswith("_") and name not in HYDRA_KEYS:
            raise UserError(f"{path}: {child_key}: a run's settings have no such key, so it is not run")
        if name == "_partial_" and isinstance(value, dict) and not isinstance(child, bool):
            raise UserError(f"{path}: {child_key}: true or false goes here")
        _require_keys(child, path, child_key)


def _nodes(value: Any, key: str = "", is_in_list: bool = False, owners: tuple[Any, ...] = ()) -> Iterator[Node]:
    if isinstance(value, dict) and "_target_" in value:
        yield Node(key, value["_target_"], is_in_list, owners)
        owners = (*owners, value["_target_"])
    for child_key, _, child in _children(value, key):
        yield from _nodes(child, child_key, is_in_list or isinstance(value, list), owners)


def _children(value: Any, key: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields the dotted key, the name and the value of each entry of a dictionary, a list or a tuple."""
    entries = enumerate(value) if isinstance(value, list | tuple) else value.items() if isinstance(value, dict) else ()
    for name, child in entries:
        yield (f"{key}.{name}" if key else str(name)), name, child


def _require_name(node: Node, path: Path, trusted: tuple[str, ...]) -> None:
    """Checks the name in a node's `_target_`; imports nothing."""
    where = f"{path}: {node.key}._target_={one_line(str(node.target))}"
    if not isinstance(node.target, str) or not _is_dotted(node.target):
        raise UserError(f"{where}: not the name of a class, so it is not run")
    if _within(node.target, trusted):
        return
    module = node.target.rpartition(".")[0]
    if not _is_ours(module):
        raise UserError(f"{where}: {_refusal(module)}")
    # Lists of nodes are for arguments of the user's own classes only.
    is_of_trusted = any(_within(str(owner), trusted) for owner in node.owners)
    if not _within(module, node.place) or (node.is_in_list and not is_of_trusted):
        raise UserError(f"{where}: no class that belongs there, so it is not run")


def _require_class(node: Node, path: Path, trusted: tuple[str, ...]) -> None:
    """Imports a node's target, and checks that it is a class defined in an allowed module, not merely imported there.

    A function is refused: it could be any function that the module imports.
    """
    where = f"{path}: {node.key}._target_={node.target}"
    module, _, name = node.target.rpartition(".")
    try:
        target = getattr(importlib.import_module(module), name)
    except Exception as error:  # importing the user's module can raise anything
        raise UserError(f"{where}: {import_failure(module, error)}") from None
    if node.target in trusted:  # named in full by the user
        return
    home = str(getattr(target, "__module__", None))
    if _within(node.target, trusted):
        is_at_home = _within(home, trusted)
    else:
        file = getattr(sys.modules.get(home), "__file__", None)
        is_at_home = file is not None and Path(file).resolve().is_relative_to(ROOT) and _within(home, node.place)
    if not isinstance(target, type) or not is_at_home:
        raise UserError(f"{where}: not a class that is defined there, so it is not run")


def _refusal(module: str) -> str:
    """Returns why a module is not imported, and what to type if it should be."""
    package = module.partition(".")[0]
    if not _is_dotted(module) or _is_standard(package) or _is_ours(package):
        return "none of this project's classes, so it is not run"
    return f"none of this project's classes, so it is not run; {_hint(package)}"


def _hint(name: str) -> str:
    """Returns what to type if a package or a path should be trusted."""
    quoted = shlex.quote(name)
    return f"if {name} is yours, add trust={quoted} (evaluate.py: --trust {quoted}; load: trusted=[{name!r}])"


def _is_ours(module: str) -> bool:
    """Returns whether a module is a file of this project; imports nothing."""
    path = ROOT.joinpath(*module.split("."))
    return _is_dotted(module) and (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file())


def _is_standard(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def _is_dotted(name: str) -> bool:
    return name.isascii() and all(word.isidentifier() for word in name.split("."))


def _within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
