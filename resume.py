"""Which run to continue: its saved configuration, and the overrides that do not change what it means."""

import importlib.util
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

import checkpoint
import cli
import settings
from settings import Settings
from utils import UserError

# What may change, and the keys that follow it in a saved configuration, where interpolations are frozen.
MAY_CHANGE: dict[str, tuple[str, ...]] = {
    "num_train_steps": (),
    "eval_frequency": (),
    "num_eval_episodes": ("evaluator.num_episodes",),
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
SHAPES = ("obs_dim", "action_dim", "action_range")  # in the saved agent; the environment gives them again


def settings_of(folder: Path, overrides: list[str], config_name: str = "train") -> Settings:
    """The settings that a run goes on with.

    Args:
        folder: the run's.
        overrides: as on the command line, without `resume` and `hydra.*`.

    Raises:
        UserError: if there is nothing to continue, or an override would change what the run means.
    """
    saved = _saved(folder)
    if not checkpoint.newest_first(folder):
        raise UserError(f"resume={folder}: there is no checkpoint in it to continue from")
    values = dict(_leaves(saved))
    for key, value in _asked_for(overrides, config_name).items():
        if key == "seed_policy" and value not in ("agent", "uniform"):
            value = str(Path(value).resolve())
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
    return settings.check(saved)


def _saved(folder: Path) -> dict[str, Any]:
    """The run's configuration."""
    path = folder / "config.yaml"
    try:
        saved = OmegaConf.to_container(OmegaConf.load(path))
    except OSError:
        raise UserError(f"resume={folder}: no run's folder; there is no config.yaml in it") from None
    except (OmegaConfBaseException, YAMLError) as error:
        raise UserError(f"{path}: cannot be read ({type(error).__name__})") from None
    if not isinstance(saved, dict) or not isinstance(saved.get("agent"), dict):
        raise UserError(f"{path}: not a run's configuration")
    for key, target in _leaves(saved):  # type: ignore[arg-type]
        if key.endswith("_target_"):
            _require_ours(key, str(target), path)
    for key in SHAPES:
        saved["agent"].pop(key, None)
    return saved  # type: ignore[return-value]


def _require_ours(key: str, target: str, path: Path) -> None:
    """A stranger's folder is to run no code: its classes have to be in this project or the current folder."""
    spec = importlib.util.find_spec(target.partition(".")[0])
    origin = Path(spec.origin).resolve() if spec and spec.origin and spec.has_location else None
    homes = (Path(__file__).resolve().parent, Path.cwd())
    if origin is None or not any(origin.is_relative_to(home) for home in homes) or "site-packages" in origin.parts:
        raise UserError(f"{path}: {key}={target}: neither in this project nor in the current folder, so it is not run")


def _asked_for(overrides: list[str], config_name: str) -> dict[str, Any]:
    """What the overrides ask for: values by dotted key, without those that only follow another key."""
    if not overrides:
        return {}
    given, default = (cli.compose_config(config_name, asked) for asked in (overrides, []))
    checked = dict(_leaves(asdict(settings.check(cli.plain(given)))))
    before, after = dict(_leaves(_raw(default))), dict(_leaves(_raw(given)))
    named = [override.key_or_group.replace("/", ".") for override in cli.parse(overrides)]
    return {
        key: checked[key]
        for key, value in after.items()
        if not (isinstance(value, str) and value.startswith("${"))
        and (key not in before or value != before[key] or any(f"{key}.".startswith(f"{name}.") for name in named))
    }


def _raw(config: DictConfig) -> Any:
    """A composed configuration without Hydra's node, its interpolations as they are written."""
    job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        return OmegaConf.to_container(job, resolve=False)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(str(error)) from None


def _leaves(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values; a list is a value."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value


def _put(config: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        config = config.setdefault(parent, {})
    config[last] = value
