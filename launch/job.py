"""What a job of Hydra's is: a run that begins, one that goes on, or one of a sweep's."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig

from launch import sweep
from launch.pruning import Trial
from run.saving import checkpoint, resume
from run.saving import folder as run_folder
from settings import compose
from settings.schema import Settings, check

# A run's settings and folder, whether to `resume` it from a checkpoint or `reuse` a folder without one, and `prune`.
Start = Callable[..., float]


def run(config: DictConfig, start: Start) -> float:
    """Hydra's job: one run in the folder that Hydra made.

    Args:
        config: as Hydra composed it.
        start: runs it.

    Returns:
        The mean return of the final evaluation; in a sweep nan for a run that failed.
    """
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    if hydra_config.mode != RunMode.MULTIRUN:
        return _in_folder(config, folder, start)
    os.chdir(hydra_config.runtime.cwd)  # where relative names in the settings count from; a worker may be elsewhere
    fixed = hydra_config.job.config.override_dirname.exclude_keys
    swept = [_shown(one) for one in compose.parse(list(hydra_config.overrides.task)) if one.key_or_group not in fixed]
    return sweep.guarded(lambda: _in_folder(config, folder, start), folder, swept)


def _shown(override: Override) -> str:
    """An override without the escapes that Hydra reads a text with: env=my_package:MyEnv-v0."""
    value = override.value()
    return f"{override.get_key_element()}={value}" if isinstance(value, str) else str(override.input_line)


def _in_folder(config: DictConfig, folder: Path, start: Start) -> float:
    hydra_config = HydraConfig.get()
    values = compose.plain(config)
    auto, trusted = values.pop("resume", None) == compose.AUTO, values.pop("trust", [])
    overrides = [text for text in hydra_config.overrides.task if not text.startswith(("+resume=", "+trust="))]
    added = [source.path for source in hydra_config.runtime.config_sources if source.provider == "command-line"]
    overrides += [compose.searching(added)] if added else []
    name = hydra_config.job.config_name
    begun = auto and bool(checkpoint.newest_first(folder))
    cfg = resume.settings_of(folder, overrides, name or "train", trusted) if begun else check(values)
    in_sweep = hydra_config.mode == RunMode.MULTIRUN
    if begun and (last_return := _already_finished(cfg, folder, pruned_too=in_sweep)) is not None:
        return last_return
    trial = Trial.of_job(hydra_config)
    launcher = hydra_config.launcher.get("_target_")
    if in_sweep and launcher in sweep.POOLS:
        command = [f"--config-name={name}", "resume=auto", *(f"trust={package}" for package in trusted), *overrides]
        command += ["hydra.mode=RUN", f"hydra.run.dir={compose.quoted(str(folder))}"]
        environment = trial.environment() if trial else {}
        return sweep.in_own_process(command, folder, cfg, launcher, Path(hydra_config.sweep.dir), environment)
    prune = trial and partial(trial.is_worse, folder, cfg)
    return start(cfg, folder, prune=prune, **({"resume": True} if begun else {"reuse": auto}))


def continue_run(
    folder: Path, overrides: list[str], config_name: str | None, trusted: Sequence[str], start: Start
) -> float:
    """Continues the run in a folder, unless it is finished.

    Returns:
        The mean return of the final evaluation.

    Raises:
        UserError: if there is nothing to continue, or an override would change what the run means.
    """
    cfg = resume.settings_of(folder, overrides, config_name or "train", trusted)
    last_return = _already_finished(cfg, folder)
    return start(cfg, folder, resume=True) if last_return is None else last_return


def _already_finished(cfg: Settings, folder: Path, pruned_too: bool = False) -> float | None:
    """The final return of a run that has nothing left to do, said in a line; None for any other.

    Args:
        pruned_too: whether a pruned run counts as one of them.
    """
    finished = run_folder.finished(folder)
    pruned = pruned_too and run_folder.was_pruned(folder)
    if finished is None or (finished[0] < cfg.num_train_steps and not pruned):
        return None
    ended = "pruned" if pruned else "finished"
    print(f"{folder}: {ended} at step {finished[0]}; nothing is left to do", flush=True)
    return finished[1]
