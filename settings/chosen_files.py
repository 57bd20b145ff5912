"""Finds mistakes in the files of chosen presets and agents that Hydra would pass over, or blame on something else."""

import re
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from yaml import YAMLError

from files.reading import read_text
from settings.keys import walk
from settings.schema import new_path
from utils import UserError

CHOSEN = ("agent", "replay_buffer")  # top-level keys whose values are chosen by name
IS_GLOBAL = re.compile(r"\s*#\s*@package +_global_ *$", re.MULTILINE)


def require_sound(group: str, path: Path) -> None:
    """Raises UserError for a mistake in a file of the group `preset` or `agent`; leaves YAML that cannot be read to
    Hydra, which names the line."""
    text = read_text(path, inside=0)
    try:
        content: Any = OmegaConf.to_container(OmegaConf.create(text))
    except (YAMLError, ValueError):
        return
    if not isinstance(content, dict) or not content:
        raise UserError(f"{path}: keys go here, such as num_train_steps: 100_000")
    defaults = content.pop("defaults", None) or []
    if not isinstance(defaults, list) or not all(isinstance(entry, str | dict) for entry in defaults):
        raise UserError(f"{path}: defaults: a list of names goes here, such as [sac, _self_]")
    if group == "preset":
        _require_preset(path, text, content, defaults)

    for key in map(str, content):
        if "." in key:
            nested = ": {".join(key.split(".")) + ": ..." + "}" * key.count(".")
            raise UserError(f"{path}: {key}: a dot does not reach into a group of keys here; write {nested}")
    for key in dict(walk(content if group == "preset" else {group: content})):
        if moved := new_path(key):
            raise UserError(f"{path}: {key}: that is called {moved} here")
    behind = defaults[defaults.index("_self_") + 1 :] if "_self_" in defaults else []
    for name in behind:
        if isinstance(name, str):
            raise UserError(f"{path}: {name} stands behind _self_ and would replace this file's keys; put _self_ last")


def _require_preset(path: Path, text: str, content: dict[str, Any], defaults: list[Any]) -> None:
    if not IS_GLOBAL.match(text):
        raise UserError(f"{path}: its first line has to be # @package _global_")
    wrong = [(key, content[key]) for key in CHOSEN if isinstance(content.get(key), str)]
    for entry in defaults:
        for key, choice in entry.items() if isinstance(entry, dict) else ():
            name = re.split("[ /]", key)[-1]
            if name in CHOSEN and not re.match(r"override +/", key):
                wrong.append((name, choice))
    for name, choice in wrong:
        raise UserError(f"{path}: {name}: {choice}: it is chosen in the list of defaults, - override /{name}: {choice}")
