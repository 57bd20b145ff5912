"""A whole agent in a file: how it was made, and its state. Loading rebuilds it, and runs no foreign code.

How it was made is written as the YAML of a run would have it: nodes that name classes, and plain values. So a file is
held against the same rules as a stranger's configuration (run/saving/trust.py), and its values against the same types.
"""

import inspect
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from agent import Agent
from run import machine, memory
from run.agents import agent_of
from run.saving import trust
from settings.schema import SUPPLIED, check_agent
from settings.signatures import parameters
from utils import UserError, load_plain, not_plain, one_line, require_count

FORMAT = "agent-1"


def save(agent: Agent, path: str | Path) -> None:
    """Writes an agent as it is now: its constructor's arguments, networks, optimizers, and the generator of its noise.

    The replay buffer is no part of it.

    Args:
        agent: its arguments are plain values, schedules of agent.schedule, and factories: classes, or
            functools.partial of them, that lie in a file which can be imported. A schedule of one's own keeps each
            argument in an attribute of that name.
        path: of the file, which appears when it is whole.

    Raises:
        UserError: for an agent without a state, or one that could not be loaded again.
    """
    path = Path(path)
    given = _arguments(agent)
    shapes = {name: _node(given.pop(name), name, path) for name in ("obs_dim", "action_dim", "action_range")}
    arguments = {name: _node(value, name, path) for name, value in given.items() if name not in SUPPLIED}
    state = agent.state_dict()
    if state is None:
        raise UserError(f"{path}: {type(agent).__name__} has no state_dict, so it cannot be saved")
    wrong = not_plain(state, "state")
    if wrong:
        raise UserError(f"{path}: {wrong} of its state_dict is neither a tensor nor a plain value")
    node = {"_target_": _name(type(agent), "agent", path), "_partial_": True} | arguments
    partial_path = path.with_name(f".{path.name}.part")
    try:
        torch.save({"format": FORMAT, "agent": node, "shapes": shapes, "state": state}, partial_path)
        partial_path.replace(path)
    except (OSError, RuntimeError) as error:  # the latter is torch's own file writer
        partial_path.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written ({one_line(error)})") from None


def load(path: str | Path, device: str = "auto", trusted: Sequence[str] = ()) -> Any:
    """The agent that `save` wrote; it acts, and learns, as that one would have.

    Args:
        path: of the file.
        device: auto, cpu, cuda or cuda:<number>.
        trusted: packages of your own whose classes the file may name beside this project's.

    Raises:
        UserError: for a file that is none, or names a class that is neither this project's nor trusted.
    """
    path = Path(path)
    try:
        saved = load_plain(path)
        node, shapes, state = (saved[name] for name in ("agent", "shapes", "state"))
        shapes = {name: _shape(name, shapes[name]) for name in ("obs_dim", "action_dim", "action_range")}
        if saved["format"] != FORMAT or not isinstance(node, dict):
            raise ValueError("of another format")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except Exception as error:  # whatever torch says of a file that is damaged, or holds more than plain values
        raise UserError(f"{path}: no agent's file, or a damaged one ({type(error).__name__})") from None
    file_bytes = path.stat().st_size
    trust.require({"agent": node}, path, trusted)
    node = check_agent(node)
    agent = agent_of(node, shapes, machine.resolve_device(device), memory.limit_by_file(file_bytes, str(path)))
    try:
        agent.load_state_dict(state)
    except Exception as error:  # whatever a state says that is not this agent's
        raise UserError(f"{path}: its state does not fit ({type(error).__name__}: {one_line(error)})") from None
    return agent


def _shape(name: str, value: Any) -> Any:
    if name == "action_range":
        low, high = value
        return [float(low), float(high)]
    return require_count(value, name)


def _arguments(agent: Agent) -> dict[str, Any]:
    """By name, what an agent's constructor was given."""
    args, kwargs = agent.made_with
    bound = inspect.signature(type(agent)).bind(*args, **kwargs)
    kinds = bound.signature.parameters
    given: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        given |= value if kinds[name].kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return given


def _node(value: Any, key: str, path: Path) -> Any:
    """An argument as YAML has it: a plain value, or a node."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list | tuple):
        return [_node(child, f"{key}.{index}", path) for index, child in enumerate(value)]
    if isinstance(value, dict):
        return {name: _node(child, f"{key}.{name}", path) for name, child in value.items()}
    if inspect.isclass(value) or (isinstance(value, partial) and not value.args):
        kind, given = _taken_apart(value)
        made = {name: _node(child, f"{key}.{name}", path) for name, child in given.items()}
        return {"_target_": _name(kind, key, path), "_partial_": True} | made
    names = [] if inspect.isroutine(value) or isinstance(value, partial) else list(parameters(type(value)))
    if not names or not all(hasattr(value, name) for name in names):
        raise UserError(
            f"{path}: {key}={one_line(repr(value))[:60]} cannot be written down; a class can, functools.partial of one "
            "with keywords, and an object that keeps its arguments in attributes of the same names"
        )
    made = {name: _node(getattr(value, name), f"{key}.{name}", path) for name in names}
    return {"_target_": _name(type(value), key, path)} | made


def _taken_apart(factory: Any) -> tuple[Any, dict[str, Any]]:
    """What a factory calls, and the keywords that it adds; of those given twice the outermost."""
    given: dict[str, Any] = {}
    while isinstance(factory, partial):
        factory, given = factory.func, {**factory.keywords, **given}
    return factory, given


def _name(kind: Any, key: str, path: Path) -> str:
    """A class's dotted name, by which it is found again."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    found: Any = None
    if kind.__module__ != "__main__" and "." not in kind.__qualname__ and inspect.isclass(kind):
        found = getattr(import_module(kind.__module__), kind.__qualname__, None)
    if found is not kind:
        raise UserError(
            f"{path}: {key}: {name} is no class that can be imported by that name; put it into a file of its own"
        )
    return name
