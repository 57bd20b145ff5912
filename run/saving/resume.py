"""Which settings a run continues with: its saved configuration, and overrides that do not change what it means."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig

from files.links import refuse_links
from run.checkpoint import list_checkpoints
from run.data import sources
from run.saving import trust
from settings import compose, plain_yaml
from settings.keys import FROM_ENVIRONMENT, dotted
from settings.schema import ASKED_BY_AGENT, Settings, check
from utils import UserError

# The keys that may change, each with the keys whose values were interpolations of it. These change with it, as a saved
# configuration has all interpolations resolved.
MAY_CHANGE: dict[str, tuple[str, ...]] = {
    "num_train_steps": (),
    "eval_frequency": (),
    "num_eval_episodes": ("evaluator.num_episodes",),
    "eval_in_background": (),
    "checkpoint_frequency": (),
    "keep_checkpoints": (),
    "save_replay_buffer": (),
    "log_frequency": ("logger.log_frequency",),
    "logger.sinks.console.columns": (),
    "device": (),
    "execution": (),
    "replay_storage": (),
    "async_envs": (),
    "physics": (),
    "env_timeout_s": (),
    "grace_s": (),
    "save_video": (),
    "save_figure": (),
}
# Values that request an automatic choice; the choice in the saved configuration stays.
CHOSEN_BY_MACHINE = {"num_threads": None, "precision": "auto", "execution": "auto", "replay_storage": "auto"}


class Continuation(NamedTuple):
    """The settings that a run continues with, and the packages, classes and paths that they may name."""

    cfg: Settings
    trusted: tuple[str, ...]


def continuation(
    folder: Path, overrides: list[str], config_name: str = "train", trusted: Sequence[str] = ()
) -> Continuation:
    """Returns the settings that a run continues with, and the names they may use.

    Args:
        overrides: as on the command line, without `resume`, `trust` and `hydra.*`.
        trusted: the user's packages, and paths, that the saved configuration may name (see run/saving/trust.py);
            names in the overrides are trusted, too.

    Raises:
        UserError: if there is no checkpoint, an override would change what the run means, or the configuration names a
            class that is not trusted.
    """
    refuse_links(folder)
    saved = _saved_config(folder)
    # Nothing that the saved configuration names is imported before this check.
    composed = compose.compose_config(config_name, overrides) if overrides else None
    named = trust.named_by(compose.plain(composed)) if composed is not None else ()
    trusted = (*trusted, *named)
    trust.require(saved, folder / "config.yaml", trusted)
    if not list_checkpoints(folder):
        raise UserError(f"resume={folder}: there is no checkpoint in it to continue from")
    saved_values = dotted(saved)
    for key, value in _requested(composed, overrides, config_name).items():
        if key == "seed_policy" and value not in ("agent", "uniform"):
            value = str(Path(value).resolve())
        if key == "preload":
            value = parse_names(value) or None
            trusted = (*trusted, *(value or ()))
        if value == saved_values.get(key) or value == CHOSEN_BY_MACHINE.get(key, ...):
            continue
        if key not in MAY_CHANGE or (key == "physics" and "warp" in (value, saved_values.get(key))):
            raise UserError(
                f"resume={folder}: {key}={value} would change the run, which has {key}={saved_values.get(key)}; "
                f"leave it out, or start another run (what may change: {', '.join(MAY_CHANGE)})"
            )
        for changed in (key, *MAY_CHANGE[key]):
            _put(saved, changed, value)
        if key == "device":  # the new device makes its own choices
            choices = {"execution": "auto", "replay_storage": "auto"}
            choices |= {"precision": "auto"} if saved["precision"] == "tf32" else {}
            saved |= choices
            saved_values |= choices  # a request that repeats the old choice is a request, too
    return Continuation(check(saved), trusted)


def _instead(folder: Path) -> str:
    """Says what a folder is that holds no run, and which one was perhaps meant."""
    if not folder.is_dir():
        return "there is no such folder"
    for parent in folder.resolve().parents[:2]:  # of a checkpoint
        if (parent / "config.yaml").exists():
            return f"did you mean {shlex.quote(f'resume={parent}')}?"
    config_files = [path for pattern in ("*", "*/*") for path in sorted(folder.glob(f"{pattern}/config.yaml"))]
    runs = [path.parent for path in config_files if path.parent.name != ".hydra"]
    if runs:
        return f"it holds {len(runs)}, such as {shlex.quote(f'resume={runs[-1]}')}"
    return "there is no config.yaml in it"


def _saved_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.yaml"
    try:
        saved = plain_yaml.load(path, resolved=True)
    except OSError:
        raise UserError(f"resume={folder}: no run's folder; {_instead(folder)}") from None
    if not isinstance(saved, dict) or not isinstance(saved.get("agent"), dict):
        raise UserError(f"{path}: not a run's configuration")
    return of_this_version(saved, has_images="obs_shape" in saved["agent"])


def of_this_version(saved: dict[str, Any], has_images: bool) -> dict[str, Any]:
    """Removes the shapes from a saved configuration; adds `frame_stack=1` if it is older than stacks of vectors."""
    for key in FROM_ENVIRONMENT:  # saved with the agent
        saved["agent"].pop(key, None)
    return saved if "obs_groups" in saved or has_images else saved | {"frame_stack": 1}


def _requested(composed: DictConfig | None, overrides: list[str], config_name: str) -> dict[str, Any]:
    """Returns the values that the overrides set, by dotted key.

    A key whose value is an interpolation is left out: it follows another key, which is included.
    """
    if composed is None:
        return {}
    checked = dotted(asdict(check(compose.plain(composed))))
    default = compose.compose_config(config_name, [])
    before, after = (dotted(compose.plain(config, resolve=False)) for config in (default, composed))
    for key in ASKED_BY_AGENT:  # set in the agent's node, it is a key of the run once it is checked
        if key in checked and after.get(f"agent.{key}") != before.get(f"agent.{key}"):
            after[key] = checked[key]
    named = tuple(f"{override.key_or_group.replace('/', '.')}." for override in compose.parse(overrides))
    return {
        key: _with_lists(checked[key])
        for key, value in after.items()
        if key in checked
        and not (isinstance(value, str) and value.startswith("${"))
        # An override that repeats a default is a request too: the run may have another value.
        and (key not in before or value != before[key] or f"{key}.".startswith(named))
    }


def _with_lists(value: Any) -> Any:
    """Turns tuples into lists, which is how YAML loads them."""
    if isinstance(value, dict):
        return {key: _with_lists(child) for key, child in value.items()}
    return [_with_lists(child) for child in value] if isinstance(value, tuple | list) else value


def _put(config: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        config = config.setdefault(parent, {})
    config[last] = value
