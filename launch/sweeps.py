"""The runs of a sweep: each in its folder, whose failure does not stop the others."""

import itertools
import json
import math
import os
import sys
import traceback
from contextlib import suppress
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from settings.operating_system import CORES_SHARED
from utils import RunError, UserError, lock, one_line, write_atomic


def run_one(config: DictConfig, hydra_config: Any, folder: Path) -> float:
    """Trains one run of a sweep, or continues it; returns its last mean return, nan if it failed.

    A launcher that restarts a run (Slurm, Ray) calls this again. A failure leaves `failed.json` in the run's folder.
    """
    os.chdir(hydra_config.runtime.cwd)  # relative paths start there, and not where a worker started
    if parent_process() is not None:
        os.environ[CORES_SHARED] = "1"
    if "joblib" in hydra_config.launcher._target_ and config.device in ("auto", "cuda"):
        _take_gpu(Path(hydra_config.sweep.dir))
    (folder / "failed.json").unlink(missing_ok=True)
    from run.resume import begin_or_continue  # imports torch, so not before the GPU is chosen
    from run.stopping import Requeued

    prune = None
    if hydra_config.sweeper.get("pruner") is not None:
        from launch.tuning import make_prune  # Optuna is optional

        prune = make_prune(hydra_config)
    try:
        last_return = begin_or_continue(config, folder, True, prune)
        print(f"{_count(folder)}, {last_return:.0f}", flush=True)
        return last_return
    except Requeued:
        raise
    except (Exception, SystemExit) as error:
        is_message = isinstance(error, UserError | RunError)
        if not is_message:
            traceback.print_exc()
        reason = one_line(error if is_message else f"{type(error).__name__}: {error}")
        print(f"{folder.name} failed: {reason}", file=sys.stderr, flush=True)
        write_atomic(folder / "failed.json", json.dumps({"reason": reason}))
    return math.nan


def _take_gpu(sweep: Path) -> None:
    """Shows this worker one GPU, for all its runs: the workers of a machine get them in turn."""
    import torch.cuda  # counts without initialising CUDA

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(index) for index in range(torch.cuda.device_count())]
    if len(gpus) < 2 or parent_process() is None:
        return
    for number in itertools.count():
        with suppress(BlockingIOError):
            lock(sweep / f".worker_{number}")  # held until the worker ends
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
            return


def _count(folder: Path) -> str:
    """Returns a line's beginning such as `3 of 12: env-walker_walk__seed-2`."""
    sweep = folder.parent
    path = sweep / "multirun.yaml"
    if not path.exists():  # a study
        return folder.name
    texts = yaml.safe_load(path.read_text(encoding="utf-8"))["hydra"]["overrides"]["task"]
    swept = [one for one in OverridesParser.create().parse_overrides(texts) if one.is_sweep_override()]
    total = math.prod(len(list(one.sweep_string_iterator())) for one in swept)
    return f"{len(list(sweep.glob('*/finished.json')))} of {total}: {folder.name}"
