"""Composes settings, with or without a command line; the functions in them, `${product:5000,${action_repeat}}`."""

from argparse import ArgumentParser
from collections.abc import Iterable
from contextlib import suppress
from operator import mul, truediv
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from settings.env_ids import EPISODE_LENGTH, find_spec
from settings.operating_system import usable_cpus
from settings.schema import Settings, check, get_values

CONFIG_DIR = Path(__file__).resolve().parents[1] / "config"
DEFAULT_LABEL = "test_exp"  # of config/train.yaml
# Also removes Hydra's escapes and quotes: Hydra hands a swept value to its jobs as env=my_pkg\:A-v0.
SLUG = str.maketrans({"/": "_", ":": "_", "\\": None, "'": None, '"': None})


def compose_config(overrides: list[str]) -> DictConfig:
    """Composes config/train.yaml as the command line would, without Hydra's own node."""
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        return compose("train", overrides)


def compose_settings(*overrides: str) -> Settings:
    """Returns the checked settings of a command line's overrides."""
    return check(get_values(compose_config(list(overrides))))


# Since Python 3.14 argparse reads help texts as options are added, and one of Hydra's is no text until it is shown.
ArgumentParser._check_help = lambda *_: None  # type: ignore[attr-defined]


def discount_of_length(env: Any, env_kwargs: Any, action_repeat: Any) -> float:
    """Returns clip(1 - 5 / T, 0.95, 0.995) for episodes of T decisions, as in TD-MPC2 (arXiv 2310.16828), SimBa, XQC.

    T follows from `env_kwargs.max_episode_steps`, or the limit registered with the id.
    """
    length = (env_kwargs or {}).get("max_episode_steps")
    with suppress(Exception):  # a name or a package that does not exist is reported when the environment is made
        length = length or find_spec(str(env)).max_episode_steps
    length = length or EPISODE_LENGTH
    return min(max(1 - 5 * max(action_repeat, 1) / length, 0.95), 0.995)


def slug(text: Any) -> str:
    """Returns a text as a part of a folder's name."""
    return str(text).translate(SLUG) or "run"


def label(experiment: Any, overrides: Iterable[str]) -> str:
    """Returns the label's part of a folder's name; "" for the default label, unless an override sets it."""
    is_set = experiment != DEFAULT_LABEL or any(text.startswith("experiment=") for text in overrides)
    return f"_{experiment}" if is_set and experiment else ""


def runs_at_once(device: str) -> int:
    """Returns how many runs share a machine: one per GPU, or one per core if no GPU is used."""
    import torch  # imported late: composing and checking do not need it

    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    return gpus or usable_cpus()


OmegaConf.register_new_resolver("product", mul, replace=True)
OmegaConf.register_new_resolver("quotient", truediv, replace=True)
for resolver in (min, discount_of_length, slug, label, runs_at_once):
    OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)
