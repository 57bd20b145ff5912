"""One line for what Hydra says of a wrong command line."""

import re
import sys
from collections.abc import Iterator
from typing import Any

from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from settings.compose import CONFIG_DIR, compose_config
from settings.schema import suggest
from utils import UserError, one_line

RENAMED = {  # what pytorch_sac, Stable-Baselines3 and CleanRL call a key -> its name here
    "double_q_critic.params.": "agent.critic.",
    "diag_gaussian_actor.params.": "agent.actor.",
    "agent.params.": "agent.",
    "agent.class": "agent._target_",
    "lr": "agent.critic_lr, agent.actor_lr and agent.alpha_lr",
    "learning_rate": "agent.critic_lr, agent.actor_lr and agent.alpha_lr",
    "policy_lr": "agent.actor_lr",
    "q_lr": "agent.critic_lr",
    "gamma": "agent.discount",
    "tau": "agent.critic_tau",
    "batch_size": "agent.batch_size",
    "ent_coef": "agent.init_temperature, with agent/temperature=fixed",
    "total_timesteps": "num_train_steps",
    "learning_starts": "num_seed_steps",
    "buffer_size": "replay_buffer_capacity",
    "train_freq": "update_every",
    "gradient_steps": "updates_per_step",
    "env_id": "env",
    "n_envs": "num_envs",
    "wandb": "log_save_wandb",
    "track": "log_save_wandb",
}
EXTRAS = {"joblib": "joblib", "submitit_slurm": "slurm", "submitit_local": "slurm", "ray": "ray"}  # of pyproject.toml


class Ending(BaseException):
    """Carries an error out of Hydra's job or callback, as Hydra would add lines of its own, or only warn."""


def explain(error: HydraException | OmegaConfBaseException) -> UserError:
    """Returns what Hydra or OmegaConf found wrong in one line, which names the key and what would be right."""
    if isinstance(error, MissingConfigException):
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if group == "hydra/launcher" and name in EXTRAS:
            return UserError(f"hydra/launcher={name}: not installed; pip install -e '.[{EXTRAS[name]}]'")
        choices = ", ".join(sorted(choice for choice in error.options or () if not choice.startswith("_")))
        return UserError(f"{group or '--config-name'}={name}: no such choice; there are {choices}")
    cause: Any = error.__cause__ or error
    absent = re.match(r"Could not (?:override|append to config|delete from config)[^']*'([^'=]+)", str(error))
    key = absent[1] if absent else getattr(cause, "full_key", None)
    if key and ("not in struct" in str(cause) or absent):
        return UserError(f"{key}: unknown key; {find_hint(key)}")
    text = one_line(cause).partition(" full_key:")[0].partition(" See https://")[0]
    return UserError(f"{key}: {text}" if key else text)


def find_hint(key: str) -> str:
    """Returns what a key is called here, or the nearest keys, or where all are listed."""
    for old, new in RENAMED.items():
        if key == old or (old.endswith(".") and key.startswith(old)):
            return f"here it is {new}{key.removeprefix(old)}"
    return suggest(key, ["preset", *_list_keys()]) or "`python train.py --help` lists them"


def _list_keys() -> list[str]:
    """Returns all dotted keys, with the groups that the command line chooses, such as agent=crossq."""
    chosen = [text for text in sys.argv[1:] if (CONFIG_DIR / text.partition("=")[0]).is_dir() and "," not in text]
    try:
        return list(_walk(compose_config(chosen)))
    except HydraException:  # a wrong choice
        return []


def _walk(config: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in map(str, config):
        yield f"{prefix}{key}"
        child = config._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none() and not child._is_interpolation():
            yield from _walk(child, f"{prefix}{key}.")
