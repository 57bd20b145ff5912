"""Begins a run in its folder, or continues what is there."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from run import folder as run_folder
from run.buffers import parse_names
from run.checkpoint import list_checkpoints
from run.workspace import Workspace, make_absolute
from settings.keys import FROM_ENVIRONMENT, dotted
from settings.schema import Settings, check, get_values
from settings.trust import require_trusted
from utils import UserError

# The keys that may change when a run goes on.
MAY_CHANGE = (
    *("num_train_steps", "eval_frequency", "num_eval_episodes", "eval_in_background", "checkpoint_frequency"),
    *("keep_checkpoints", "save_replay_buffer", "log_frequency", "logger.sinks.console.columns", "device", "execution"),
    *("replay_storage", "async_envs", "physics", "env_timeout_s", "grace_s", "save_video", "save_figure"),
)
# Those that follow one of them, as a saved configuration has no interpolations.
FOLLOWERS = {"num_eval_episodes": "evaluator.num_episodes", "log_frequency": "logger.log_frequency"}
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
    cfg = make_absolute(check(get_values(config)))
    if not (may_continue and list_checkpoints(folder)):
        return _train(cfg, folder, resume=False, prune=prune)
    plain = OmegaConf.to_container(OmegaConf.create(asdict(cfg)))  # with lists instead of tuples, as it is saved
    written = dotted(OmegaConf.to_container(config, resolve=False))  # type: ignore[arg-type]
    followers = {key for key, value in written.items() if str(value).startswith("${")}  # each follows another key
    wanted = {key: value for key, value in dotted(plain).items() if key not in followers}  # type: ignore[arg-type]
    return _continue(_change(_read(folder), wanted, folder), folder, prune, pruned_too=True)


def continue_run(folder: Path, overrides: Sequence[str], trusted: Sequence[str]) -> float:
    """Continues the run in a folder, unless it is finished; see `load_settings`."""
    cfg = load_settings(folder, trusted, overrides)
    if not list_checkpoints(folder):
        raise UserError(f"resume={folder}: there is no checkpoint in it to continue from")
    return _continue(cfg, folder)


def load_settings(folder: Path, trusted: Sequence[str] = (), overrides: Sequence[str] = ()) -> Settings:
    """Returns the settings of the run in a folder, changed by overrides such as `num_train_steps=1e6`.

    Raises:
        UserError: if there is no run, it names code that is not trusted, or an override would change the run.
    """
    saved = _read(folder)
    require_trusted(saved, trusted, str(folder / "config.yaml"))
    wanted: dict[str, Any] = {}
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        wanted |= dotted({str(override.key_or_group): override.value()})
    if "preload" in wanted:  # as it is saved
        wanted["preload"] = parse_names(wanted["preload"]) or None
    return _change(saved, wanted, folder)


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


def _read(folder: Path) -> dict[str, Any]:
    """Reads a run's saved configuration."""
    path = folder / "config.yaml"
    try:
        saved = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{folder}: no run's folder ({path.name}: {error.strerror})") from None
    for key in FROM_ENVIRONMENT:  # saved with the agent
        saved["agent"].pop(key, None)
    return saved


def _change(saved: dict[str, Any], wanted: dict[str, Any], folder: Path) -> Settings:
    """Puts the wanted values, by dotted key, into a saved configuration; refuses those that would change the run."""
    before = dotted(saved)
    may_change = {*MAY_CHANGE, *FOLLOWERS.values()}
    for key, value in wanted.items():
        is_same = before.get(key, ...) == value or AUTOMATIC.get(key, ...) == value
        if is_same or (key.startswith("logger.") and key not in may_change):
            continue
        if key not in may_change or (key == "physics" and "warp" in (value, before[key])):
            raise UserError(
                f"resume={folder}: {key}={value} would change the run, which has {key}={before.get(key)}; leave it "
                f"out, or begin another run (what may change: {', '.join(MAY_CHANGE)})"
            )
        for changed in (key, FOLLOWERS.get(key, key)):
            *parents, last = changed.split(".")
            node = saved
            for parent in parents:
                node = node[parent]
            node[last] = value
        if key == "device":  # the new device makes its own choices
            saved |= {"execution": "auto", "replay_storage": "auto"}
            saved["precision"] = "auto" if saved["precision"] == "tf32" else saved["precision"]
    return check(saved)
