"""Whose classes a saved configuration may name: this project's in their places, and those that the user trusts.

A run's folder may be a stranger's, and Hydra calls whatever a `_target_` names. So every node of a saved configuration,
at any depth, is looked at before anything is imported or built.
"""

import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from utils import UserError, one_line

ROOT = Path(__file__).resolve().parents[2]
# The nodes that a configuration has, by their first key, and the modules whose classes belong there. A class of the
# project elsewhere (run.saving.folder.Lock, say) could write where a stranger tells it to.
PLACES: dict[str, tuple[str, ...]] = {
    "agent": ("agent",),
    "reward_scale": ("agent",),
    "replay_buffer": ("replay_buffer", "replay"),
    "logger": ("logger", "sinks"),
    "evaluator": ("run.evaluation.evaluator",),
}
KEYWORDS = ("_target_", "_partial_")  # of Hydra's, those that a configuration here has


class Node(NamedTuple):
    """A `_target_` and where it stands."""

    key: str
    target: Any
    is_in_list: bool
    owners: tuple[Any, ...]  # the targets of the nodes around it, outermost first


def names(text: str) -> tuple[str, ...]:
    """The packages and modules in `my_package,other.module`.

    Raises:
        UserError: for what is no module's name, or one of Python's own, whose classes can do anything.
    """
    found = tuple(name.strip() for name in text.split(","))
    for name in found:
        if not _is_dotted(name) or name.partition(".")[0] in sys.stdlib_module_names:
            raise UserError(f"trust={text}: the name of a package or a module of your own goes here")
    return found


def named_by(config: dict[str, Any]) -> tuple[str, ...]:
    """What a command's own configuration names beside this project's classes: it runs anyway."""
    named = {str(node.target) for node in _nodes(config)}
    env = str(config.get("env"))
    named |= {env.partition(":")[0]} if ":" in env else set()
    return tuple(sorted(name for name in named if not _is_ours(name.rpartition(".")[0]) and not _is_ours(name)))


def require(config: dict[str, Any], path: Path, trusted: Iterable[str] = ()) -> None:
    """Checks what a saved configuration would import and call.

    Args:
        config: as plain values.
        path: of its file, for what is said.
        trusted: packages, modules and classes, by dotted names, that may be imported and called with any arguments.

    Raises:
        UserError: for anything but a class of this project in its place, or one that is trusted.
    """
    trusted = tuple(trusted)
    _require_keys(config, path)
    env = config.get("env")
    if isinstance(env, str) and ":" in env:
        module = env.partition(":")[0]
        if env.count(":") > 1 or not _within(module, trusted):
            raise UserError(f"{path}: env={one_line(env)}: {_not_run(module)}")
    nodes = list(_nodes(config))
    for node in nodes:
        _require_allowed(node, path, trusted)
    for node in nodes:
        _require_class(node, path, trusted)


def _require_keys(value: Any, path: Path, key: str = "") -> None:
    """Of Hydra's own words a saved configuration has two; with the others more could be called, and otherwise."""
    for name, child in _children(value):
        here = f"{key}.{name}" if key else str(name)
        if isinstance(value, dict) and not isinstance(name, str):
            raise UserError(f"{path}: {here}: a key that is no word")
        if isinstance(name, str) and name.startswith("_") and name not in KEYWORDS:
            raise UserError(f"{path}: {here}: a run's settings have no such key, so it is not run")
        if name == "_partial_" and isinstance(value, dict) and not isinstance(child, bool):
            raise UserError(f"{path}: {here}: true or false goes here")
        _require_keys(child, path, here)


def _nodes(value: Any, key: str = "", in_list: bool = False, owners: tuple[Any, ...] = ()) -> Iterator[Node]:
    if isinstance(value, dict) and "_target_" in value:
        yield Node(key, value["_target_"], in_list, owners)
        owners = (*owners, value["_target_"])
    for name, child in _children(value):
        yield from _nodes(child, f"{key}.{name}" if key else str(name), in_list or isinstance(value, list), owners)


def _children(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


def _require_allowed(node: Node, path: Path, trusted: tuple[str, ...]) -> None:
    """Without importing anything."""
    what = f"{path}: {node.key}._target_={one_line(str(node.target))}"
    if not isinstance(node.target, str) or not _is_dotted(node.target):
        raise UserError(f"{what}: not the name of a class, so it is not run")
    module = node.target.rpartition(".")[0]
    if _within(node.target, trusted):
        return
    if not _is_ours(module):
        raise UserError(f"{what}: {_not_run(module)}")
    is_argument = any(_within(str(owner), trusted) for owner in node.owners)
    if not _within(module, PLACES.get(node.key.partition(".")[0], ())) or (node.is_in_list and not is_argument):
        raise UserError(f"{what}: no class that belongs there, so it is not run")


def _require_class(node: Node, path: Path, trusted: tuple[str, ...]) -> None:
    """A function could be anything that a module happens to use; a class is what it defines."""
    what = f"{path}: {node.key}._target_={node.target}"
    module, _, name = node.target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever a module of the user's own raises
        raise UserError(f"{what}: cannot be imported ({type(error).__name__}: {one_line(error)})") from None
    home = getattr(found, "__module__", None)
    if node.target in trusted:  # the command itself names it
        return
    if _within(node.target, trusted):
        is_at_home = isinstance(home, str) and _within(home, trusted)
    else:
        at = getattr(sys.modules.get(str(home)), "__file__", None)
        is_at_home = at is not None and Path(at).resolve().is_relative_to(ROOT)
        is_at_home = is_at_home and _within(str(home), PLACES[node.key.partition(".")[0]])
    if not isinstance(found, type) or not is_at_home:
        raise UserError(f"{what}: not a class that is defined there, so it is not run")


def _not_run(module: str) -> str:
    """Why a module is not imported, and what to type if it should be."""
    package = module.partition(".")[0]
    if not _is_dotted(module) or package in sys.stdlib_module_names or _is_ours(package):
        return "none of this project's classes, so it is not run"
    return (
        f"none of this project's classes, so it is not run; if {package} is yours, add trust={package} "
        f"(evaluate.py: --trust {package}; load: trusted=['{package}'])"
    )


def _is_ours(module: str) -> bool:
    """Whether a module is a file of this project, found without importing it."""
    at = ROOT.joinpath(*module.split("."))
    return _is_dotted(module) and (at.with_suffix(".py").is_file() or (at / "__init__.py").is_file())


def _is_dotted(name: str) -> bool:
    return name.isascii() and all(part.isidentifier() for part in name.split("."))


def _within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
