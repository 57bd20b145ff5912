"""Composes settings, with or without a command line.

Hydra 1.3 is patched in the function that applies overrides, also in the workers of a sweep. Without the patch it would
merge a node of another class with the old one: `agent.critic.head={_target_: my.Head, _partial_: true}` would keep the
old head's keys; and it would ask for a plus, `+env_kwargs.friction=0.5`, for keys that only the environment knows.
"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from settings import resolvers  # noqa: F401  registers functions for YAML
from settings.schema import Settings, check, get_values

CONFIG_DIR = Path(__file__).resolve().parents[1] / "config"
OPEN_GROUPS = ("env_kwargs", "info_keys")  # groups that take keys which no YAML names


def compose_config(overrides: list[str], config_name: str = "train") -> DictConfig:
    """Composes a configuration of config/ as the command line would, without Hydra's own node."""
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        return compose(config_name, overrides)


def compose_settings(*overrides: str) -> Settings:
    """Returns the checked settings of a command line's overrides."""
    return check(get_values(compose_config(list(overrides))))


def _apply_overrides(overrides: list[Override], config: DictConfig) -> None:
    for override in overrides:
        key, value = override.key_or_group, None if override.is_delete() else override.value()
        group, parent = _select(config, key.partition(".")[0]), _select(config, key.rpartition(".")[0])
        if isinstance(group, DictConfig) and key.startswith(OPEN_GROUPS):
            OmegaConf.set_struct(group, False)
        if isinstance(parent, DictConfig) and key.endswith("._target_"):
            OmegaConf.set_struct(parent, False)  # another class has other keys
        old = _select(config, key)
        target = value.get("_target_") if isinstance(value, dict) else None
        if target and isinstance(old, DictConfig) and target != old.get("_target_"):
            OmegaConf.update(config, key, None, merge=False)
        _hydras_apply([override], config)


def _select(config: DictConfig, key: str) -> Any:
    return OmegaConf.select(config, key, throw_on_missing=False, throw_on_resolution_failure=False) if key else None


_hydras_apply = ConfigLoaderImpl._apply_overrides_to_config
ConfigLoaderImpl._apply_overrides_to_config = staticmethod(_apply_overrides)  # type: ignore[method-assign, assignment]
# Since Python 3.14 argparse reads help texts as options are added, and one of Hydra's is no text until it is shown.
ArgumentParser._check_help = lambda *_: None  # type: ignore[attr-defined]
