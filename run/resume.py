"""Begins a run in its folder, or continues what is there."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from run import folder as run_folder
from run.preload import parse_names
from run.workspace import Workspace
from settings.keys import FROM_ENVIRONMENT, dotted
from settings.schema import Settings, check, get_values
from settings.trust import require_trusted
from utils import UserError

# The keys that may change when a run goes on, each with keys that follow it: a saved configuration has no
# interpolations.
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
# Values that ask for an automatic choice; the one in the saved configuration stays.
AUTOMATIC = {"device": "auto", "num_threads": None, "precision": "auto", "execution": "auto", "replay_storage": "auto"}


def begin_or_continue(
    config: DictConfig, folder: Path, may_continue: bool, prune: Callable[[int], bool] | None = None
) -> float:
    """Trains a run in its folder to its end; returns the mean return of its last evaluation.

    Args:
        config: the composed configuration, without Hydra's node.
        may_continue: go on from the folder's newest checkpoint, if it has one; a finished run is not trained again.
        prune: see Evaluations.
    """
    cfg = check(get_values(config))
    if not (may_continue and any(folder.glob("checkpoints/step_*"))):
        return _train(cfg, folder, resume=False, prune=prune)
    saved = _read(folder)
    written = dotted(OmegaConf.to_container(config, resolve=False))  # type: ignore[arg-type]
    followers = {key for key, value in written.items() if str(value).startswith("${")}  # each follows another key
    _merge(saved, {key: value for key, value in dotted(asdict(cfg)).items() if key not in followers}, folder)
    return _continue(check(saved), folder, prune, pruned_too=True)


def continue_run(folder: Path, overrides: Sequence[str], trusted: Sequence[str]) -> float:
    """Continues the run in a folder, unless it is finished; see `load_settings`."""
    cfg = load_settings(folder, trusted, overrides)
    if not any(folder.glob("checkpoints/step_*")):
        raise UserError(f"resume={folder}: there is no checkpoint in it to continue from")
    return _continue(cfg, folder)


def load_settings(folder: Path, trusted: Sequence[str] = (), overrides: Sequence[str] = ()) -> Settings:
    """Returns the settings of the run in a folder, changed by overrides such as `num_train_steps=1e6`.

    Raises:
        UserError: if there is no run, it names code that is not trusted, or an override would change the run.
    """
    saved = _read(folder, trusted)
    wanted: dict[str, Any] = {}
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        wanted |= dotted({str(override.key_or_group): override.value()})
    _merge(saved, wanted, folder)
    return check(saved)


def _continue(
    cfg: Settings, folder: Path, prune: Callable[[int], bool] | None = None, pruned_too: bool = False
) -> float:
    finished = run_folder.read_finished(folder)
    if finished is None or (finished["step"] < cfg.num_train_steps and not (pruned_too and finished["pruned"])):
        return _train(cfg, folder, resume=True, prune=prune)
    print(f"{folder}: finished at step {finished['step']}; nothing is left to do", flush=True)
    return float(finished["last_return"])


def _train(cfg: Settings, folder: Path, resume: bool, prune: Callable[[int], bool] | None) -> float:
    workspace = Workspace(cfg, folder, resume=resume, prune=prune)
    try:
        last_return = workspace.run()
    finally:
        workspace.close()
    print("\n".join(workspace.summary()), flush=True)
    return last_return


def _read(folder: Path, trusted: Sequence[str] | None = None) -> dict[str, Any]:
    """Reads a run's saved configuration, whose names are checked unless `trusted` is None."""
    path = folder / "config.yaml"
    try:
        saved = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{folder}: no run's folder ({path.name}: {error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({type(error).__name__})") from None
    if trusted is not None:
        require_trusted(saved, trusted, str(path))
    for key in FROM_ENVIRONMENT:  # saved with the agent
        saved["agent"].pop(key, None)
    return saved


def _merge(saved: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    """Puts the wanted values, by dotted key, into a saved configuration; refuses those that would change the run."""
    before = dotted(asdict(check(saved)))
    may_change = {*MAY_CHANGE, *(follower for followers in MAY_CHANGE.values() for follower in followers)}
    for key, value in wanted.items():
        if key == "seed_policy" and Path(value).exists():  # as it is saved
            value = str(Path(value).resolve())
        elif key == "preload":
            value = parse_names(value) or None
        elif key == "env_wrappers":
            value = [{"_partial_": True, **node} for node in value]
        is_same = before.get(key, ...) == (tuple(value) if isinstance(before.get(key), tuple) else value)
        if is_same or AUTOMATIC.get(key, ...) == value or (key.startswith("logger.") and key not in may_change):
            continue
        if key not in may_change or (key == "physics" and "warp" in (value, before[key])):
            raise UserError(
                f"resume={folder}: {key}={value} would change the run, which has {key}={before.get(key)}; leave it "
                f"out, or begin another run (what may change: {', '.join(MAY_CHANGE)})"
            )
        for changed in (key, *MAY_CHANGE.get(key, ())):
            _put(saved, changed, value)
        if key == "device":  # the new device makes its own choices
            saved |= {"execution": "auto", "replay_storage": "auto"}
            saved["precision"] = "auto" if saved["precision"] == "tf32" else saved["precision"]


def _put(config: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        config = config[parent]
    config[last] = value
