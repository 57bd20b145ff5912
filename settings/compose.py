"""Composes settings without a command line, for tests, benchmarks and tools."""

from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from settings import hydra_patch, resolvers  # noqa: F401  they patch Hydra, and register functions for YAML
from settings.schema import Settings, check, get_values

CONFIG_DIR = Path(__file__).resolve().parents[1] / "config"


def compose_config(overrides: list[str], config_name: str = "train") -> DictConfig:
    """Composes a configuration of config/ as the command line would, without Hydra's own node."""
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        return compose(config_name, overrides)


def compose_settings(*overrides: str) -> Settings:
    """Returns the checked settings of a command line's overrides."""
    return check(get_values(compose_config(list(overrides))))
