"""Saves a policy alone, and loads it without running untrusted code: a file names only this project's networks."""

import math
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from agent.policy import Policy
from files.reading import checksum, read_json
from files.tensors import load_plain, save_plain
from files.writing import NewFile
from utils import UserError, unwrapped

FORMAT = "policy-2"
HERE = Path(__file__).resolve().parent

Recipe = dict[str, Any]  # {"target": dotted name of a network's class, "kwargs": plain values and recipes}


def recipe(factory: Any, **shapes: Any) -> Recipe:
    """Returns how to rebuild a factory's network: its class's name and its arguments, with factories as recipes."""
    factory, keywords = unwrapped(factory)
    kwargs = {name: recipe(value) if callable(value) else value for name, value in keywords.items()}
    return {"target": f"{factory.__module__}.{factory.__qualname__}", "kwargs": {**kwargs, **shapes}}


def save_policy(policy: Policy, path: str | Path) -> None:
    """Writes a policy into a file, which appears when it is complete.

    Raises:
        UserError: for a network that `load_policy` would refuse.
        OSError: if the file cannot be written.
    """
    state = plain_policy(policy)
    with NewFile(Path(path)) as file:
        save_plain(state, file)


def plain_policy(policy: Policy) -> dict[str, Any]:
    """Returns what a policy's file holds: weights, shapes and the action range, as tensors and plain values.

    Raises:
        UserError: for a network that `load_policy` would refuse.
    """
    networks = {}
    for name, network in policy.networks.items():
        network_recipe = getattr(network, "recipe", None)
        if network_recipe is None:
            raise UserError(f"{name}: {type(network).__name__} was not made by the agent's `build`, which keeps how")
        _factory(network_recipe, name)  # refuses what load_policy would refuse
        key = "observation_normaliser" if name == "normaliser" else name
        networks[key] = network_recipe | {"weights": network.state_dict()}
    return {"format": FORMAT, "networks": networks, "action_range": list(policy.action_range)}


def load_policy(path: str | Path, device: str = "cpu", seed: int = 0) -> Policy:
    """Rebuilds a saved policy, without a configuration.

    Raises:
        UserError: if the file cannot be read, is no policy of this format, names a network that is not this project's,
            or differs from the manifest in its folder.
    """
    _require_manifest_digest(Path(path))
    try:
        saved = load_plain(path, device, inside=0)
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
    except Exception as error:  # a network may raise anything for wrong arguments and weights
        raise UserError(f"{path}: not a whole policy ({type(error).__name__})") from None
    generator = torch.Generator(device).manual_seed(seed)
    critic, normaliser = networks.get("critic"), networks.get("observation_normaliser")
    return Policy(actor, (low, high), torch.device(device), generator, critic, normaliser)


def _require_manifest_digest(path: Path) -> None:
    """Checks a file in a checkpoint's folder against the manifest.

    Raises:
        UserError: if it differs, or the manifest cannot be read.
    """
    manifest = path.parent / "manifest.json"
    if not manifest.exists():
        return
    try:
        content = read_json(manifest)
        if "manifest" not in content:
            return  # a manifest of something else
        versions = [content["manifest"], content["manifest"].get("before") or {"parts": {}}]
        expected = [version["parts"].get(path.stem) for version in versions]
        digest = checksum(path, inside=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: cannot be compared with {manifest.name} ({type(error).__name__})") from None
    if digest not in expected:
        raise UserError(f"{path}: has changed since {manifest.name} beside it was written")


def _rebuild(part: dict[str, Any], path: str | Path) -> nn.Module:
    """Builds a network with its weights; first on "meta", as forged arguments may ask for any amount of memory."""
    make, weights = _factory(part, path), part["weights"]
    if any(depth > len(weights) for depth in _depths(part)):  # even without memory, each layer takes time
        raise ValueError("more layers than there are weights")
    try:
        with torch.device("meta"):
            shapes = {name: _shape(value) for name, value in make().state_dict().items()}
    except UserError as error:  # the network refuses an argument, which is the file's mistake, not the user's
        raise ValueError(error) from None
    if shapes != {name: _shape(value) for name, value in weights.items()}:
        raise ValueError("weights of other shapes")
    if sum(_bytes(value) for value in weights.values()) > Path(path).stat().st_size:
        raise ValueError("more weights than the file holds")
    network: Any = make()
    network.load_state_dict(weights)
    network.recipe = {name: part[name] for name in ("target", "kwargs")}  # so that it can be saved again
    return network


def _depths(part: Recipe) -> Iterator[int]:
    """Yields every `hidden_depth` in a recipe and in its nested recipes."""
    for name, value in part["kwargs"].items():
        if name == "hidden_depth":
            yield value
        elif isinstance(value, dict):
            yield from _depths(value)


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, torch.Tensor) else None


def _bytes(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


def _factory(network_recipe: Recipe, path: str | Path) -> partial[nn.Module]:
    """Returns the factory that a recipe describes; nested recipes become factories too."""
    kwargs = network_recipe["kwargs"].items()
    kwargs = {name: _factory(value, path) if isinstance(value, dict) else value for name, value in kwargs}
    return partial(_network_class(network_recipe["target"], path), **kwargs)


def _network_class(target: str, path: str | Path) -> type[nn.Module]:
    """Returns the network class of this name if a file of the agent package defines it; imports nothing else."""
    module, _, name = target.rpartition(".")
    package, *names = module.split(".")
    network_class = None
    is_ours = package == "agent" and all(part.isidentifier() for part in names)
    if is_ours and HERE.joinpath(*names).with_suffix(".py").is_file():
        network_class = getattr(import_module(module), name, None)
    is_network = isinstance(network_class, type) and issubclass(network_class, nn.Module)
    if network_class is None or not is_network or network_class.__module__ != module:
        raise UserError(f"{path}: it needs {target}, which is not one of this project's networks")
    return network_class
