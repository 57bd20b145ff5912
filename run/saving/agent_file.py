"""A whole agent in one file, for use without a run: how to build it, and its state. Loading runs no untrusted code.

How to build it is saved like the `agent` node of a configuration: `_target_` names the classes, the rest is plain
values. So loading applies the checks of an untrusted configuration (run/saving/trust.py) and of its types.
"""

import inspect
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from hydra.utils import instantiate

from agent import Agent
from files.tensors import load_plain, save_plain
from files.writing import NewFile
from run import machine
from run.saving import trust
from settings.schema import SUPPLIED, check_agent
from settings.signatures import parameters
from utils import UserError, not_plain, one_line, require_count, unwrapped

FORMAT = "agent-1"
SHAPES = ("obs_dim", "action_dim", "action_range")


def save(agent: Agent, path: str | Path) -> None:
    """Writes an agent: its constructor's arguments, and its state. The replay buffer is not included.

    Args:
        agent: its constructor's arguments have to be plain values, classes that can be imported, functools.partial of
            such classes, schedules of agent.schedule, or objects that keep each of their own arguments in an attribute
            of its name.

    Raises:
        UserError: if the agent has no state, could not be loaded again, or the file cannot be written.
    """
    path = Path(path)
    arguments = _arguments(agent)
    shapes = {name: _node(arguments[name], name, path) for name in SHAPES}
    for name in sorted((SUPPLIED - {*SHAPES, "device"}) & arguments.keys()):
        raise UserError(f"{path}: {type(agent).__name__} was made with {name}=…, which a run gives and no file can")
    state = agent.state_dict()
    if state is None:
        raise UserError(f"{path}: {type(agent).__name__} has no state_dict, so it cannot be saved")
    if fault := not_plain(state, "state"):
        raise UserError(f"{path}: {fault} of its state_dict is neither a tensor nor a plain value")
    node = {"_target_": _name(type(agent), "agent", path), "_partial_": True}
    node |= {name: _node(value, name, path) for name, value in arguments.items() if name not in SUPPLIED}
    try:
        with NewFile(path) as file:
            save_plain({"format": FORMAT, "agent": node, "shapes": shapes, "state": state}, file)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def load(path: str | Path, device: str = "auto", trusted: Sequence[str] = ()) -> Any:
    """Loads an agent that `save` wrote. It acts and learns as the saved agent would have.

    Args:
        device: auto, cpu, cuda or cuda:<number>.
        trusted: packages of your own whose classes the file may name besides this project's.

    Raises:
        UserError: if the file is damaged, does not hold an agent, or names a class that is neither this project's nor
            trusted.
    """
    path = Path(path)
    try:
        saved = load_plain(path, inside=0)
        node, shapes, state = (saved[name] for name in ("agent", "shapes", "state"))
        low, high = map(float, shapes["action_range"])
        shapes = {name: require_count(shapes[name], name) for name in ("obs_dim", "action_dim")}
        shapes["action_range"] = [low, high]
        if saved["format"] != FORMAT or not isinstance(node, dict):
            raise ValueError("of another format")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except Exception as error:  # a damaged or forged file can make torch raise anything
        raise UserError(f"{path}: not a saved agent, or damaged ({type(error).__name__})") from None
    # Before anything is imported or built: only trusted classes, and no network larger than the file.
    trust.require({"agent": node}, path, trusted)
    node = check_agent(node)
    agent = instantiate(node, _convert_="all")(**shapes, device=machine.resolve_device(device))
    try:
        agent.load_state_dict(state)
    except Exception as error:  # a state of another agent can make it raise anything
        raise UserError(f"{path}: its state does not fit ({type(error).__name__}: {one_line(error)})") from None
    return agent


def _arguments(agent: Agent) -> dict[str, Any]:
    """Returns the arguments that an agent's constructor was called with, by name."""
    args, kwargs = agent.made_with
    bound = inspect.signature(type(agent)).bind(*args, **kwargs)
    arguments = dict(bound.arguments)
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= arguments.pop(name, {})
    return arguments


def _node(value: Any, key: str, path: Path) -> Any:
    """Converts an argument to its form in a configuration: a plain value, or a node with a `_target_`."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list | tuple):
        return [_node(child, f"{key}.{index}", path) for index, child in enumerate(value)]
    if isinstance(value, dict):
        return {name: _node(child, f"{key}.{name}", path) for name, child in value.items()}
    if inspect.isclass(value) or (isinstance(value, partial) and not value.args):  # a factory
        target, keywords = unwrapped(value)
        head = {"_target_": _name(target, key, path), "_partial_": True}
    else:  # an object that keeps its arguments, such as a schedule
        names = [] if inspect.isroutine(value) or isinstance(value, partial) else list(parameters(type(value)))
        if not names or not all(hasattr(value, name) for name in names):
            raise UserError(
                f"{path}: {key}={one_line(repr(value))[:60]} cannot be saved; a class can, functools.partial of one "
                "with keywords, and an object that keeps its arguments in attributes of the same names"
            )
        keywords = {name: getattr(value, name) for name in names}
        head = {"_target_": _name(type(value), key, path)}
    return head | {name: _node(child, f"{key}.{name}", path) for name, child in keywords.items()}


def _name(kind: Any, key: str, path: Path) -> str:
    """Returns a class's dotted name; raises UserError if the class cannot be imported by it."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    is_importable = kind.__module__ != "__main__" and "." not in kind.__qualname__ and inspect.isclass(kind)
    if not is_importable or getattr(import_module(kind.__module__), kind.__qualname__, None) is not kind:
        raise UserError(f"{path}: {key}: {name} cannot be imported by that name; define the class in a file of its own")
    return name
