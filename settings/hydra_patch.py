"""Changes to Hydra 1.3: a node of another class replaces the one that is there, some groups take keys that no YAML
names, and it starts on Python 3.14.

Hydra would merge two nodes: `agent=tqc agent.critic.head={_target_: agent.networks.CategoricalHead, _partial_: true}`
would leave the bins with the number of quantiles. It would also ask for a plus, `+env_kwargs.friction=0.5`, though
these keys are the environment's and no mistake. As every composing, that of a sweep's worker included, applies its
overrides in one function, it is done there: nothing else has to know.
"""

from argparse import ArgumentParser
from importlib import import_module
from typing import Any

from hydra._internal import utils as hydra_utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

OPEN = ("env_kwargs",)  # groups whose keys somebody else's code knows

_args_parser = hydra_utils.get_args_parser
_apply = ConfigLoaderImpl._apply_overrides_to_config


def _replacing(overrides: list[Override], cfg: DictConfig) -> None:
    for key in OPEN:
        node = _there(cfg, key)
        if isinstance(node, DictConfig):
            OmegaConf.set_struct(node, False)
    for override in overrides:
        if not override.is_delete():
            _make_room(cfg, override.key_or_group, override.value())
        _apply([override], cfg)


def _make_room(cfg: DictConfig, key: str, value: Any) -> None:
    """Empties the node at a key, or the nodes in it, where the value names another class; the same one is merged."""
    there = _there(cfg, key)
    if not isinstance(value, dict) or not isinstance(there, DictConfig):
        return
    before, after = (node.get("_target_") for node in (there, value))
    if before is not None and after is not None and before != after:
        OmegaConf.update(cfg, key, None, merge=False)
        return
    for name, child in value.items():
        _make_room(cfg, f"{key}.{name}", child)


def _there(cfg: DictConfig, key: str) -> Any:
    return OmegaConf.select(cfg, key, throw_on_missing=False, throw_on_resolution_failure=False)


def args_parser() -> ArgumentParser:
    """Hydra's parser of its own options.

    It gives one of them an object in place of a help text, to be written only when it is shown. Since Python 3.14
    argparse looks into help texts as they are added and raises ValueError.
    """
    ArgumentParser._check_help = lambda *_: None  # type: ignore[attr-defined]  # hides the base class's
    try:
        return _args_parser()
    finally:
        del ArgumentParser._check_help  # type: ignore[attr-defined]


def install() -> None:
    """Changes Hydra in this process."""
    ConfigLoaderImpl._apply_overrides_to_config = staticmethod(_replacing)  # type: ignore[method-assign]
    hydra_utils.get_args_parser = args_parser
    import_module("hydra.main").get_args_parser = args_parser  # type: ignore[attr-defined]  # by that name: a function
