"""The runs of a sweep: each in its folder, whose failure does not stop the others."""

import itertools
import json
import math
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from launch.checks import Ending
from utils import RunError, UserError, lock, one_line, write_atomic

ROOT = Path(__file__).resolve().parents[1]
SHARED = "RUNS_SHARE_THE_CORES"  # see run/execution.py, which imports torch
STOPPING = "SWEEP_IS_STOPPING"  # environment variable: this worker ends its run, and begins no other


def run_one(config: DictConfig, hydra_config: Any, folder: Path) -> float:
    """Trains one run of a sweep, or continues it; returns its last mean return, nan if it failed.

    A launcher that restarts a run (Slurm, Ray) calls this again. A failure leaves `failed.json` in the run's folder.
    """
    if STOPPING in os.environ:
        return math.nan
    os.chdir(hydra_config.runtime.cwd)  # relative paths start there, and not where a worker started
    if parent_process() is not None:
        os.environ[SHARED] = "1"
        for number in (signal.SIGINT, signal.SIGTERM):  # until the run's own handlers (run/stopping.py)
            signal.signal(number, lambda *_: os.environ.update({STOPPING: "1"}))
    if "joblib" in hydra_config.launcher._target_ and config.device in ("auto", "cuda"):
        _take_gpu(Path(hydra_config.sweep.dir))
    (folder / "failed.json").unlink(missing_ok=True)
    from run.resume import begin_or_continue  # imports torch, so not before the GPU is chosen
    from run.stopping import Requeued, Stopped

    try:
        last_return = begin_or_continue(config, folder, True, _make_prune(hydra_config))
        print(f"{_count(folder)}, {last_return:.0f}", flush=True)
        return last_return
    except Requeued:
        raise
    except Stopped as stopped:
        if parent_process() is None and "SUBMITIT_EXECUTOR" not in os.environ:
            raise  # ends the sweep
        print(stopped, flush=True)
        os.environ[STOPPING] = "1"
    except (Exception, SystemExit) as error:
        is_message = isinstance(error, UserError | RunError)
        if not is_message:
            traceback.print_exc()
        reason = one_line(error if is_message else f"{type(error).__name__}: {error}")
        print(f"{folder.name} failed: {reason}", file=sys.stderr, flush=True)
        write_atomic(folder / "failed.json", json.dumps({"reason": reason}))
    return math.nan


def _make_prune(hydra_config: Any) -> Any:
    if hydra_config.sweeper.get("pruner") is None:
        return None
    from launch.tuning import make_prune  # not before: Optuna is optional

    return make_prune(hydra_config)


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
    """Returns a line's beginning such as `3 of 12: env=walker_walk seed=2`."""
    sweep = folder.parent
    overrides = yaml.safe_load((folder / ".hydra/overrides.yaml").read_text(encoding="utf-8"))
    path = sweep / "multirun.yaml"
    if not path.exists():  # a study
        return folder.name
    texts = yaml.safe_load(path.read_text(encoding="utf-8"))["hydra"]["overrides"]["task"]
    swept = [one for one in OverridesParser.create().parse_overrides(texts) if one.is_sweep_override()]
    total = math.prod(len(list(one.sweep_string_iterator())) for one in swept)
    keys = tuple(f"{one.get_key_element()}=" for one in swept)
    label = " ".join(text for text in overrides if text.startswith(keys)) or folder.name
    return f"{len(list(sweep.glob('*/finished.json')))} of {total}: {label}"


@contextmanager
def saving_on_signal() -> Iterator[None]:
    """Within its block, a signal that ends a pool's sweep is passed on to the workers, so that their runs save first.

    Without workers it ends this process as usual: a run's own handlers replace these (run/stopping.py).
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for workers that start elsewhere
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        workers = [child for child in psutil.Process().children() if "loky" in " ".join(child.cmdline())]
        if not workers or received:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        received.append(number)
        print("\nthe runs are saving; a second Ctrl-C does not wait for them", file=sys.stderr, flush=True)
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.send_signal(signal.SIGTERM)

    before: dict[int, Any] = {int(one): signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        try:
            yield
        except Ending:  # the list of what is missing
            if not received:
                raise
        if received:
            raise KeyboardInterrupt("the sweep was stopped after its runs had saved; resume=auto goes on")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
