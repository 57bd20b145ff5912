"""Checks a command line before a folder is made. A single run's parts are built here, once."""

from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig, OmegaConf

from launch import launchers
from launch.request import LaunchRequest, Runs, output_folder
from run import environments
from run.build import Parts, build
from run.saving import folder as run_folder
from settings import plain_yaml
from settings.compose import AUTO, parse, plain, quoted
from settings.schema import Settings
from utils import UserError


class PreparedRun(NamedTuple):
    """A run that can begin: its configuration with Hydra's node, its settings, and its folder."""

    config: DictConfig
    cfg: Settings
    folder: Path


def prepare_run(request: LaunchRequest) -> PreparedRun:
    """Checks one run by building its parts, and then claims its folder; creates nothing if there is a mistake."""
    assert request.runs is not None
    (cfg,) = request.runs.settings()
    _require_wandb(cfg)
    folder, named = _folder(request, "hydra.run.dir", [cfg])
    may_continue = request.line.resume == AUTO
    folder = run_folder.claim(folder, "hydra.run.dir", may_exist=named, may_continue=may_continue)
    return PreparedRun(request.runs.config, cfg, folder)


def prepare_sweep(request: LaunchRequest) -> tuple[list[str], Path]:
    """Checks the runs of a sweep, one for every swept value, and then claims its folder.

    Returns:
        The arguments for Hydra, and the sweep's folder.
    """
    runs, line = request.runs, request.line
    assert runs is not None
    settings = runs.settings()
    _require_batch_size(runs)
    for override in runs.parsed:
        if override.key_or_group == "hydra.sweep.subdir" and not override.value():
            raise UserError("hydra.sweep.subdir=: each run needs a folder of its own")
    check_runs(settings)
    key = "hydra.sweep.dir"
    folder, named = _folder(request, key, settings)
    may_continue = line.resume == AUTO
    if not runs.tunes and (folder / "tuning.yaml").exists():
        raise UserError(f"{key}={folder}: there is a study in it; choose another folder, or add hydra/sweeper=tuning")
    if named and not may_continue and not runs.tunes and run_folder.files_below(folder, "train.csv"):
        raise UserError(f"{key}={folder}: there are runs in it; choose another folder, or add resume={AUTO}")
    launchers.require(OmegaConf.to_container(runs.config.hydra.launcher, resolve=True))  # type: ignore[arg-type]
    folder = run_folder.claim(folder, key, may_exist=named, may_continue=may_continue)
    if runs.tunes:
        from launch import tuning  # not before: Optuna is optional

        direction = runs.config.hydra.sweeper.direction
        tuning.open_study(folder, direction, runs.ranges, plain(runs.configs[0]), may_continue)
    # resume=auto lets a run continue that its launcher restarts. The folder is absolute, as a worker may start in
    # another directory.
    again = [f"+resume={AUTO}", *([f"+trust=[{','.join(map(quoted, line.trusted))}]"] if line.trusted else [])]
    fixed = _fixed_keys(runs, folder, bool(line.trusted))
    if not {override.key_or_group for override in runs.every} - {*fixed, *_of_hydra(runs)}:
        again.append(f"seed={settings[0].seed}")  # a run's folder is named after something, and lies in the sweep's
    exclude = f"hydra.job.config.override_dirname.exclude_keys={fixed}"
    folder = folder.resolve()
    return [*line.argv, *again, exclude, f"{key}={quoted(str(folder))}"], folder


def check_runs(runs: list[Settings]) -> None:
    """Builds the parts of each run, with one environment, and throws them away."""
    checked: set[str] = set()  # labels of data sets that have been read through
    for cfg in runs:
        environments.is_batched(cfg)  # raises an error for async_envs, which is left out below


def _folder(request: LaunchRequest, key: str, settings: list[Settings]) -> tuple[Path, bool]:
    """Returns the folder to claim, and whether the command line names it."""
    assert request.runs is not None
    named = request.runs.sets(key)
    if request.line.resume == AUTO and not named:
        raise UserError(f"resume={AUTO}: name the folder to look into, such as {key}=exp/my_run")
    return output_folder(request.runs.config, key), named


def _fixed_keys(runs: Runs, folder: Path, is_trusting: bool) -> list[str]:
    """Returns the keys left out of the names of subfolders: all that neither this nor an earlier sweep here varies.

    The seed is never left out, as another seed may follow, except where an earlier sweep has left it out.
    """
    swept = {override.key_or_group for override in runs.parsed if override.is_sweep_override()}
    left_out: set[str] = set()
    path = folder / "multirun.yaml"  # of an earlier sweep
    if path.exists():
        before = plain_yaml.load(path)
        try:
            keys = {override.key_or_group for override in parse(list(before["hydra"]["overrides"]["task"]))}
            keys |= set(before["hydra"]["sweeper"].get("params") or {})
            left_out = set(before["hydra"]["job"]["config"]["override_dirname"]["exclude_keys"])
            swept |= keys - left_out
        except (KeyError, TypeError):
            raise UserError(f"{path}: not what a sweep writes") from None
    named = [*(override.key_or_group for override in runs.parsed), "resume", *(["trust"] if is_trusting else [])]
    return [key for key in named if key not in swept and (key != "seed" or key in left_out)]


def _of_hydra(runs: Runs) -> list[str]:
    """Returns the keys of Hydra's own node, which are in no folder's name."""
    return [o.key_or_group for o in runs.every if o.key_or_group.startswith(("hydra.", "hydra/"))]


def _require_batch_size(runs: Runs) -> None:
    size = runs.config.hydra.sweeper.get("max_batch_size")
    if size is not None and (type(size) is not int or size < 1):
        raise UserError(f"hydra.sweeper.max_batch_size={size}: null, or the most runs that are started together")
