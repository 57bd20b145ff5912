"""A policy alone, saved and loaded without running foreign code."""

import hashlib
import json
import math
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from agent.policy import Policy
from utils import UserError, load_plain, open_file

FORMAT = "policy-2"


HERE = Path(__file__).resolve().parent

Recipe = dict[str, Any]  # how to build a network again: {"target": its class's dotted name, "kwargs": plain values}


def recipe(factory: Any, **shapes: Any) -> Recipe:
    """How to build a network again: its class by name, and the plain values, or the recipes of parts, it was given."""
    kwargs: dict[str, Any] = {}
    while isinstance(factory, partial):
        factory, kwargs = factory.func, {**factory.keywords, **kwargs}
    kwargs = {name: recipe(value) if callable(value) else value for name, value in kwargs.items()}
    return {"target": f"{factory.__module__}.{factory.__qualname__}", "kwargs": {**kwargs, **shapes}}


def save_policy(policy: Policy, path: Path) -> None:
    """Writes weights, shapes and the action range: tensors and plain values only.

    Raises:
        UserError: for a network that `load_policy` would refuse.
    """
    parts = {}
    for name, network in policy.networks.items():
        made = getattr(network, "recipe", None)
        if made is None:
            raise UserError(f"{path}: {type(network).__name__} was not made by the agent's `build`, which keeps how")
        _factory(made, path)
        parts["observation_normaliser" if name == "normaliser" else name] = made | {"weights": network.state_dict()}
    torch.save({"format": FORMAT, "networks": parts, "action_range": list(policy.action_range)}, path)


def load_policy(path: str | Path, device: str = "cpu", seed: int = 0) -> Policy:
    """Rebuilds a saved policy; it needs no buffer, no configuration and no GPU.

    Raises:
        UserError: for a file that cannot be read, is no policy of this format, names a network that is not ours, or is
            not what the manifest of its checkpoint's folder says.
    """
    _require_as_signed(Path(path))
    try:
        saved = load_plain(path, device)
    except Exception as error:
        raise UserError(f"{path}: not a policy that can be read ({type(error).__name__})") from None
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise UserError(f"{path}: not a policy of format {FORMAT}")
    try:
        networks = {name: _rebuild(part, path).to(device).eval() for name, part in saved["networks"].items()}
        actor, (low, high) = networks["actor"], map(float, saved["action_range"])
        if not -math.inf < low < high < math.inf:
            raise ValueError("the lower bound comes first")
    except UserError:
        raise
    except Exception as error:  # whatever a network says of arguments and weights that are not its own
        raise UserError(f"{path}: not a whole policy ({type(error).__name__})") from None
    generator = torch.Generator(device).manual_seed(seed)
    critic, normaliser = networks.get("critic"), networks.get("observation_normaliser")
    return Policy(actor, (low, high), torch.device(device), generator, critic, normaliser)


def _require_as_signed(path: Path) -> None:
    """In a checkpoint's folder, a file has to be what the manifest there says.

    Raises:
        UserError: if it is not, or the manifest cannot be read.
    """
    manifest = path.parent / "manifest.json"
    if not manifest.exists():
        return
    try:
        with open_file(manifest) as file:
            said = json.loads(file.read())
        if "manifest" not in said:
            return  # of something else
        told = [said["manifest"], said["manifest"].get("before") or {"parts": {}}]  # see run/saving/best.py
        expected = [one["parts"].get(path.stem) for one in told]
        with open_file(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: cannot be held against {manifest.name} ({type(error).__name__})") from None
    if digest not in expected:
        raise UserError(f"{path}: has changed since {manifest.name} beside it was written")


def _rebuild(part: dict[str, Any], path: str | Path) -> nn.Module:
    """A network with its weights; first without memory, as arguments and weights may not have to do with each other."""
    make, weights = _factory(part, path), part["weights"]
    if any(depth > len(weights) for depth in _depths(part)):
        raise ValueError("more layers than there are weights")
    try:
        with torch.device("meta"):
            shapes = {name: _shape(value) for name, value in make().state_dict().items()}
    except UserError as error:  # an argument that the network refuses, of a file, and not of the user's
        raise ValueError(error) from None
    if shapes != {name: _shape(value) for name, value in weights.items()}:
        raise ValueError("weights of other shapes")
    if sum(_bytes(value) for value in weights.values()) > Path(path).stat().st_size:
        raise ValueError("more weights than the file holds")
    network = make()
    network.load_state_dict(weights)
    return network


def _depths(part: Recipe) -> Iterator[int]:
    """The numbers of layers that a recipe asks for."""
    for name, value in part["kwargs"].items():
        if name == "hidden_depth":
            yield value
        elif isinstance(value, dict):
            yield from _depths(value)


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, torch.Tensor) else None


def _bytes(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


def _factory(made: Recipe, path: str | Path) -> partial[nn.Module]:
    """What `recipe` was made of; parts of a network are factories in their turn."""
    kwargs = {
        name: _factory(value, path) if isinstance(value, dict) else value for name, value in made["kwargs"].items()
    }
    return partial(_network_class(made["target"], path), **kwargs)


def _network_class(target: str, path: str | Path) -> type[nn.Module]:
    """A network class that a file of this project's agent package defines; nothing else that a name could reach."""
    module, _, name = target.rpartition(".")
    package, *parts = module.split(".")
    is_ours = package == "agent" and all(part.isidentifier() for part in parts)
    found = None
    if is_ours and HERE.joinpath(*parts).with_suffix(".py").is_file():
        found = getattr(import_module(module), name, None)
    if not (isinstance(found, type) and issubclass(found, nn.Module) and found.__module__ == module):
        raise UserError(f"{path}: it needs {target}, which is not one of this project's networks")
    return found
