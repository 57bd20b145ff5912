"""Patches Hydra 1.3: a node of another class replaces the old one, open groups take any key, and Python 3.14 works.

Hydra would merge two nodes: `agent.critic.head={_target_: my.Head, _partial_: true}` would keep the old head's keys.
It would also ask for a plus, `+env_kwargs.friction=0.5`, for keys that only the environment knows. Hydra applies
overrides in one function, also in the workers of a sweep, so that function is replaced.
"""

from argparse import ArgumentParser
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

OPEN_GROUPS = ("env_kwargs", "info_keys")  # groups that take keys which no YAML names

_hydras_apply = ConfigLoaderImpl._apply_overrides_to_config


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


ConfigLoaderImpl._apply_overrides_to_config = staticmethod(_apply_overrides)  # type: ignore[method-assign, assignment]
# Since Python 3.14 argparse reads help texts as options are added, and one of Hydra's is no text until it is shown.
ArgumentParser._check_help = lambda *_: None  # type: ignore[attr-defined]
