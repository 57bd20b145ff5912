"""How overrides differ here from Hydra's: a node of another class takes the place of the one that is there, and some
groups take keys that no YAML names.

Hydra would merge two nodes: `agent=tqc agent.critic.head={_target_: agent.networks.CategoricalHead, _partial_: true}`
would leave the bins with the number of quantiles. It would also ask for a plus, `+env_kwargs.friction=0.5`, though
these keys are the environment's and no mistake. As every composing, that of a sweep's worker included, applies its
overrides in one function, it is done there: nothing else has to know.
"""

from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

OPEN = ("env_kwargs",)  # groups whose keys somebody else's code knows

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


def install() -> None:
    """Has every composing in this process apply its overrides so."""
    ConfigLoaderImpl._apply_overrides_to_config = staticmethod(_replacing)  # type: ignore[method-assign]
