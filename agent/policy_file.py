"""Saves a policy alone, and loads it without running untrusted code: a file names only this project's networks."""

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from agent.policy import Policy
from utils import UserError, replacing

FORMAT = "policy-2"
HERE = Path(__file__).resolve().parent

Recipe = dict[str, Any]  # {"target": dotted name of a network's class, "kwargs": plain values and recipes}


def recipe(factory: Any, **shapes: Any) -> Recipe:
    """Returns how to rebuild a factory's network: its class's name and its arguments, with factories as recipes."""
    factory, keywords = _unwrap(factory)
    kwargs = {name: recipe(value) if callable(value) else value for name, value in keywords.items()}
    return {"target": f"{factory.__module__}.{factory.__qualname__}", "kwargs": {**kwargs, **shapes}}


def _unwrap(factory: Any) -> tuple[Any, dict[str, Any]]:
    """Returns what nested functools.partial call in the end, and their keywords; the outermost counts."""
    keywords: dict[str, Any] = {}
    while isinstance(factory, partial):
        factory, keywords = factory.func, {**factory.keywords, **keywords}
    return factory, keywords


def save_policy(policy: Policy, path: str | Path) -> None:
    """Writes a policy into a file; raises UserError for a network that `load_policy` would refuse."""
    state = plain_policy(policy)
    with replacing(Path(path)) as partial_path:
        torch.save(state, partial_path)


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
    """Rebuilds a saved policy, without a configuration; runs no code but this project's networks.

    Raises:
        UserError: if the file is no policy of this format, or names a network that is not this project's.
    """
    try:
        saved = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # a damaged file, or one that holds more than weights, can make torch raise anything
        raise UserError(f"{path}: not a policy that can be read ({type(error).__name__})") from None
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise UserError(f"{path}: not a policy of format {FORMAT}")
    networks = {name: _rebuild(part, path).to(device).eval() for name, part in saved["networks"].items()}
    low, high = saved["action_range"]
    generator = torch.Generator(device).manual_seed(seed)
    critic, normaliser = networks.get("critic"), networks.get("observation_normaliser")
    return Policy(networks["actor"], (low, high), torch.device(device), generator, critic, normaliser)


def _rebuild(part: dict[str, Any], path: str | Path) -> nn.Module:
    network: Any = _factory(part, path)()
    network.load_state_dict(part["weights"])
    network.recipe = {name: part[name] for name in ("target", "kwargs")}  # so that it can be saved again
    return network


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
