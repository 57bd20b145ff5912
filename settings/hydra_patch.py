"""Patches Hydra 1.3 in four places: a node of another class replaces the old one, open groups take any key, some files
are no choices, and Python 3.14 works.

Hydra would merge two nodes: `agent=tqc agent.critic.head={_target_: agent.networks.CategoricalHead, _partial_: true}`
would leave the new head with the old one's number of quantiles. Hydra would also ask for a plus,
`+env_kwargs.friction=0.5`, for keys that only the environment knows, or only the class that a `_target_` on the command
line names. Hydra applies overrides in one function, also in the workers of a sweep, so that function is replaced.
"""

from argparse import ArgumentParser
from importlib import import_module
from typing import Any

from hydra._internal import utils as hydra_utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

OPEN_GROUPS = ("env_kwargs", "info_keys")  # groups that take keys which no YAML names

_hydras_args_parser = hydra_utils.get_args_parser
_hydras_apply = ConfigLoaderImpl._apply_overrides_to_config
_hydras_options = ConfigLoaderImpl.get_group_options


def _apply_overrides(overrides: list[Override], cfg: DictConfig) -> None:
    targets = [override.key_or_group for override in overrides if override.key_or_group.endswith("._target_")]
    for key in (*OPEN_GROUPS, *(target.removesuffix("._target_") for target in targets)):  # settings.schema checks them
        if isinstance(group := _select(cfg, key), DictConfig):
            OmegaConf.set_struct(group, False)
    for override in overrides:
        if not override.is_delete():
            _clear_replaced_nodes(cfg, override.key_or_group, override.value())
        _hydras_apply([override], cfg)


def _clear_replaced_nodes(cfg: DictConfig, key: str, value: Any) -> None:
    """Empties the node at a key, or nodes in it, if the value has another `_target_`; Hydra merges equal ones."""
    node = _select(cfg, key)
    if not isinstance(value, dict) or not isinstance(node, DictConfig):
        return
    old, new = node.get("_target_"), value.get("_target_")
    if old is not None and new is not None and old != new:
        OmegaConf.update(cfg, key, None, merge=False)
        return
    for name, child in value.items():
        _clear_replaced_nodes(cfg, f"{key}.{name}", child)


def _select(cfg: DictConfig, key: str) -> Any:
    return OmegaConf.select(cfg, key, throw_on_missing=False, throw_on_resolution_failure=False)


def _group_options(self: ConfigLoaderImpl, *args: Any, **kwargs: Any) -> list[str]:
    """Returns a group's choices, for `glob(*)`, without files that begin with _: these are only bases of others."""
    return [name for name in _hydras_options(self, *args, **kwargs) if not name.startswith("_")]


def args_parser() -> ArgumentParser:
    """Returns Hydra's parser of its own options.

    One option has an object as its help text, which Hydra renders only when it is shown. Since Python 3.14 argparse
    checks help texts as options are added, and would raise ValueError.
    """
    ArgumentParser._check_help = lambda *_: None  # type: ignore[attr-defined]  # hides the base class's
    try:
        return _hydras_args_parser()
    finally:
        del ArgumentParser._check_help  # type: ignore[attr-defined]


ConfigLoaderImpl._apply_overrides_to_config = staticmethod(_apply_overrides)  # type: ignore[method-assign]
ConfigLoaderImpl.get_group_options = _group_options  # type: ignore[method-assign]
hydra_utils.get_args_parser = args_parser
import_module("hydra.main").get_args_parser = args_parser  # type: ignore[attr-defined]  # its own reference
