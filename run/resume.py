"""Begins a run in its folder, or continues what is there."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from run.buffers import parse_names
from run.checkpoint import list_checkpoints
from run.workspace import Workspace, read_finished
from settings.keys import FROM_ENVIRONMENT
from settings.schema import Settings, check, get_values
from settings.trust import require_trusted
from utils import UserError, dotted

# The keys that may change when a run goes on.
MAY_CHANGE = (
    *("num_train_steps", "eval_frequency", "eval_in_background", "checkpoint_frequency", "keep_checkpoints"),
    *("save_replay_buffer", "device", "execution", "replay_storage", "async_envs"),
    *("save_video", "save_figure", "physics"),
)


def begin_or_continue(
    config: DictConfig, folder: Path, may_continue: bool, prune: Callable[[int], bool] | None = None
) -> float:
    """Trains a run in its folder to its end; returns the mean return of its last evaluation.

    Args:
        config: the composed configuration, without Hydra's node.
        may_continue: go on from the folder's newest checkpoint, if it has one; a finished run is not trained again.
        prune: see Evaluations.
    """
    cfg, resume = check(get_values(config)), may_continue and bool(list_checkpoints(folder))
    if Path(cfg.seed_policy).is_file():
        cfg = dataclasses.replace(cfg, seed_policy=str(Path(cfg.seed_policy).resolve()))
    cfg = dataclasses.replace(cfg, preload=parse_names(cfg.preload) or None)
    if resume:
        plain = OmegaConf.to_container(OmegaConf.create(dataclasses.asdict(cfg)))  # lists for tuples, as it is saved
        written = dotted(OmegaConf.to_container(config, resolve=False))
        new_values = dotted(plain)
        follows = [key for key in new_values if str(written.get(key)).startswith("${")]  # so no change is asked for
        cfg = _change(_read(folder), {key: new_values[key] for key in new_values if key not in follows}, folder)
    last_return = _find_result(cfg, folder, pruned_too=True) if may_continue else None
    return Workspace(cfg, folder, resume, prune).run() if last_return is None else last_return


def continue_run(folder: Path, overrides: Sequence[str], trusted: Sequence[str]) -> float:
    """Continues the run in a folder, unless it is finished; see `load_settings`."""
    cfg = load_settings(folder, trusted, overrides)
    last_return = _find_result(cfg, folder, pruned_too=False)
    return Workspace(cfg, folder, resume=True).run() if last_return is None else last_return


def load_settings(folder: Path, trusted: Sequence[str] = (), overrides: Sequence[str] = ()) -> Settings:
    """Returns the settings of the run in a folder, changed by overrides such as `num_train_steps=1e6`.

    Raises:
        UserError: if there is no run, it names code that is not trusted, or an override would change the run.
    """
    saved = _read(folder)
    require_trusted(saved, trusted, str(folder / "config.yaml"))
    new_values: dict[str, Any] = {}
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        new_values |= dotted({str(override.key_or_group): override.value()})
    return _change(saved, new_values, folder)


def _find_result(cfg: Settings, folder: Path, pruned_too: bool) -> float | None:
    """Returns the last mean return of a run with nothing left to do, otherwise None."""
    finished = read_finished(folder)
    if finished is None or (finished["step"] < cfg.num_train_steps and not (pruned_too and finished["pruned"])):
        return None
    print(f"{folder}: finished at step {finished['step']}; nothing is left to do", flush=True)
    return float(finished["last_return"])


def _read(folder: Path) -> dict[str, Any]:
    """Reads a run's saved configuration."""
    path = folder / "config.yaml"
    if not path.exists():
        raise UserError(f"{folder}: no run's folder ({path.name}: missing)")
    saved = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key in FROM_ENVIRONMENT:  # saved with the agent
        saved["agent"].pop(key, None)
    return saved


def _change(saved: dict[str, Any], new_values: dict[str, Any], folder: Path) -> Settings:
    """Puts the new values, by dotted key, into a saved configuration; refuses those that would change the run. An
    automatic choice that was made stays."""
    before = dotted(saved)
    for key, value in new_values.items():
        is_automatic = value == "auto" or (key == "num_threads" and value is None)
        if is_automatic or before.get(key, ...) == value or key.startswith("logger."):
            continue
        if key not in MAY_CHANGE or (key == "physics" and "warp" in (value, before[key])):
            raise UserError(
                f"resume={folder}: {key}={value} would change the run, which has {key}={before.get(key)}; leave it "
                f"out, or begin another run (what may change: {', '.join(MAY_CHANGE)})"
            )
        saved[key] = value
        if key == "device":  # the new device makes its own choices
            saved |= {"execution": "auto", "replay_storage": "auto"}
            saved["precision"] = "auto" if saved["precision"] == "tf32" else saved["precision"]
    return check(saved)
