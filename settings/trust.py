"""What a saved configuration may build: this project's classes, and those of packages that the user trusts.

A run's folder or a policy may come from someone else, and Hydra calls whatever a `_target_` names.
"""

import importlib
from collections.abc import Sequence
from typing import Any

from utils import UserError, leaves

# The modules whose classes a node may name, by the configuration's top-level key.
PLACES: dict[str, tuple[str, ...]] = {
    "agent": ("agent",),
    "reward_scale": ("agent.schedule",),
    "replay_buffer": ("replay_buffer", "replay"),
    "logger": ("logger", "sinks"),
    "evaluator": ("run.evaluation.evaluator",),
}
HYDRA_KEYS = ("_target_", "_partial_")  # those that this project's configurations use


def require_trusted(config: dict[str, Any], trusted: Sequence[str], where: str) -> None:
    """Checks every name in a configuration that would be imported; imports nothing but this project's modules.

    Raises:
        UserError: for any other name, and for Hydra's keys that change what is called.
    """
    package, colon, _ = str(config.get("env", "")).partition(":")
    if colon and not is_within(package, trusted):
        raise UserError(
            f"{where}: env={config['env']} would run code of {package}; if you trust it, add trust={package}"
        )
    for key, value in leaves(config):
        *parents, name = key.split(".")
        if "_target_" in parents or any(part.startswith("_") and part not in HYDRA_KEYS for part in (*parents, name)):
            raise UserError(f"{where}: {key}: no run writes such a key")
        if "${" in str(value):  # Hydra would resolve it when it builds the node, and a resolver can make a node
            raise UserError(f"{where}: {key}={value}: an interpolation; a run's settings are saved without")
        if name != "_target_" or is_within(str(value), trusted):
            continue
        packages = PLACES.get(parents[0] if parents else "", ())
        if not is_within(str(value), packages):
            hint = f"if you trust it, add trust={str(value).partition('.')[0]}"
            raise UserError(f"{where}: {key}={value}: not a class of this project that belongs there; {hint}")
        if find_class(str(value), packages) is None:
            raise UserError(f"{where}: {key}={value}: not a class that is defined there")


def find_class(name: str, packages: Sequence[str], trusted: Sequence[str] = ()) -> Any:
    """Returns the class of this name if one of these packages or modules defines it, or what a trusted one calls so;
    None otherwise."""
    module, _, class_name = name.rpartition(".")
    try:
        known = is_within(module, (*packages, *trusted))
        target = getattr(importlib.import_module(module), class_name, None) if known else None
    except ImportError:
        target = None
    is_ours = isinstance(target, type) and is_within(target.__module__, packages)
    return target if is_ours or is_within(module, trusted) else None


def is_within(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
