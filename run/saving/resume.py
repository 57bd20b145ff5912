"""Which run to continue: its saved configuration, and the overrides that do not change what it means."""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from run import memory
from run.data import sources
from run.saving import checkpoint, trust
from run.saving.checkpoint import BrokenError, Checkpoint
from run.saving.links import refuse_links
from settings import compose
from settings import plain_yaml as saved_yaml
from settings.keys import dotted
from settings.schema import ASKED_BY_AGENT, Settings, check
from utils import UserError

# What may change, and the keys that follow it in a saved configuration, where interpolations are frozen.
MAY_CHANGE: dict[str, tuple[str, ...]] = {
    "num_train_steps": (),
    "eval_frequency": (),
    "num_eval_episodes": ("evaluator.num_episodes",),
    "eval_in_background": (),
    "checkpoint_frequency": (),
    "keep_checkpoints": (),
    "save_replay_buffer": (),
    "log_frequency": ("logger.log_frequency",),
    "device": (),
    "execution": (),
    "replay_storage": (),
    "async_envs": (),
    "env_timeout_s": (),
    "grace_s": (),
    "save_video": (),
    "save_figure": (),
}
# What asks for the machine's choice; the saved configuration has what was chosen.
LEFT_TO_THE_MACHINE = {"num_threads": None, "precision": "auto", "execution": "auto", "replay_storage": "auto"}
SHAPES = ("obs_dim", "obs_shape", "action_dim", "action_range")  # in the saved agent; the environment gives them again


def settings_of(
    folder: Path, overrides: list[str], config_name: str = "train", trusted: Sequence[str] = ()
) -> Settings:
    """The settings that a run goes on with.

    Args:
        folder: the run's.
        overrides: as on the command line, without `resume`, `trust` and `hydra.*`.
        trusted: packages whose classes its configuration may name beside this project's (see run/saving/trust.py);
            what the overrides name themselves is trusted, too.

    Raises:
        UserError: if there is nothing to continue, an override would change what the run means, or the folder could
            do more than be continued.
    """
    refuse_links(folder)
    saved = _saved(folder)
    given = compose.compose_config(config_name, overrides) if overrides else None
    named = trust.named_by(compose.plain(given)) if given is not None else ()
    trust.require(saved, folder / "config.yaml", (*trusted, *named))
    checkpoints = checkpoint.newest_first(folder)
    if not checkpoints:
        raise UserError(f"resume={folder}: there is no checkpoint in it to continue from")
    with contextlib.suppress(BrokenError):
        Checkpoint(checkpoints[0])  # one of another version says so, before its configuration is found to be different
    largest = max((path.stat().st_size for found in checkpoints for path in found.glob("agent.pt")), default=0)
    memory.require_sizes(saved["agent"], largest, f"{folder}")
    values = dotted(saved)
    for key, value in _asked_for(given, overrides, config_name).items():
        if key == "seed_policy" and value not in ("agent", "uniform"):
            value = str(Path(value).resolve())
        if key == "preload":
            value = sources.named(value) or None
        if value == values.get(key) or value == LEFT_TO_THE_MACHINE.get(key, ...):
            continue
        if key not in MAY_CHANGE:
            raise UserError(
                f"resume={folder}: {key}={value} would change the run, which has {key}={values.get(key)}; "
                f"leave it out, or start another run (what may change: {', '.join(MAY_CHANGE)})"
            )
        for changed in (key, *MAY_CHANGE[key]):
            _put(saved, changed, value)
        if key == "device":  # what the other device chose
            saved |= {"execution": "auto", "replay_storage": "auto"}
            saved["precision"] = "auto" if saved["precision"] == "tf32" else saved["precision"]
    return check(saved)


def _saved(folder: Path) -> dict[str, Any]:
    """The run's configuration."""
    path = folder / "config.yaml"
    try:
        saved = saved_yaml.load(path, resolved=True)
    except OSError:
        raise UserError(f"resume={folder}: no run's folder; there is no config.yaml in it") from None
    if not isinstance(saved, dict) or not isinstance(saved.get("agent"), dict):
        raise UserError(f"{path}: not a run's configuration")
    for key in SHAPES:
        saved["agent"].pop(key, None)
    return saved


def _asked_for(given: DictConfig | None, overrides: list[str], config_name: str) -> dict[str, Any]:
    """What the overrides ask for: values by dotted key, without those that only follow another key.

    Args:
        given: composed with the overrides; None without any.
    """
    if given is None:
        return {}
    default = compose.compose_config(config_name, [])
    checked = dotted(asdict(check(compose.plain(given))))
    before, after = dotted(_raw(default)), dotted(_raw(given))
    for key in ASKED_BY_AGENT:  # it arrives in the run's key of that name
        if key in checked and after.get(f"agent.{key}") != before.get(f"agent.{key}"):
            after[key] = checked[key]
    named = [override.key_or_group.replace("/", ".") for override in compose.parse(overrides)]
    return {
        key: _as_in_yaml(checked[key])
        for key, value in after.items()
        if key in checked
        and not (isinstance(value, str) and value.startswith("${"))
        and (key not in before or value != before[key] or any(f"{key}.".startswith(f"{name}.") for name in named))
    }


def _as_in_yaml(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_in_yaml(child) for key, child in value.items()}
    return [_as_in_yaml(child) for child in value] if isinstance(value, tuple | list) else value


def _raw(config: DictConfig) -> Any:
    """A composed configuration without Hydra's node, its interpolations as they are written."""
    job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        return OmegaConf.to_container(job, resolve=False)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(str(error)) from None


def _put(config: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        config = config.setdefault(parent, {})
    config[last] = value
