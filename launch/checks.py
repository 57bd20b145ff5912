"""Hydra's callback: checks a command before Hydra makes a folder, and lists what is missing when a sweep ends."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from envs import names
from launch.mistakes import Ending, explain
from settings.schema import check, get_values
from utils import RunError, UserError

AUTO = "auto"  # value of `resume`


class CheckFirst(Callback):
    """Checks the values of a run, or of a sweep's first run; a sweep's other values are checked by their own runs."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        with _ending():
            check_run(config)
            _require_free(config, "hydra.run.dir", "config.yaml")

    def on_multirun_start(self, config: DictConfig, **run: Any) -> None:
        with _ending():
            overrides = parse_sweep(config)
            check_run(compose(run["config_name"], [_take_first(override) for override in overrides]))
            # A run's folder is named by its seed and what the sweep varies.
            fixed = [
                one.key_or_group for one in overrides if not one.is_sweep_override() and one.key_or_group != "seed"
            ]
            exclude = f"hydra.job.config.override_dirname.exclude_keys={[*fixed, 'resume']}"
            config.hydra.overrides.hydra.append(exclude)
            _require_free(config, "hydra.sweep.dir", "*/config.yaml")

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        with _ending():
            sweep = Path(config.hydra.sweep.dir)
            runs = sorted(path.parents[1] for path in sweep.glob("*/.hydra/overrides.yaml"))
            missing = [run for run in runs if not (run / "finished.json").exists()]
            if missing and "n_trials" not in config.hydra.sweeper:  # in a study, a failed trial is a result
                lines = [f"{len(missing)} of {len(runs)} runs did not finish:", *map(_describe_failure, missing)]
                how = f"the same command with resume=auto hydra.sweep.dir={sweep} runs what is missing"
                raise RunError("\n  ".join([*lines, how]))


@contextmanager
def _ending() -> Iterator[None]:
    """Lets errors through Hydra, which only warns of those in callbacks."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise Ending from explain(error)
    except Exception as error:
        raise Ending from error


def check_run(config: DictConfig) -> None:
    """Checks the values of one run; those that need no slow imports first."""
    names.require_known(str(config.env))
    check(get_values(config))


def parse_sweep(config: DictConfig) -> list[Override]:
    """Returns a sweep's overrides: the command line's, and those of a preset (`hydra.sweeper.params`) before them."""
    texts = list(config.hydra.overrides.task)
    keys = {text.partition("=")[0] for text in texts}
    params = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items() if key not in keys]
    return OverridesParser.create().parse_overrides([*params, *texts])


def _take_first(override: Override) -> str:
    if not override.is_sweep_override():
        return str(override.input_line)
    value = override.value()
    first = value.start if isinstance(value, IntervalSweep) else next(iter(override.sweep_string_iterator()))
    return f"{override.get_key_element()}={first}"


def _require_free(config: DictConfig, key: str, pattern: str) -> None:
    """Refuses a folder that holds runs, unless they are to go on."""
    folder = Path(config.hydra.run.dir if key == "hydra.run.dir" else config.hydra.sweep.dir)
    if config.resume == AUTO:
        if not any(text.startswith(f"{key}=") for text in config.hydra.overrides.hydra):
            raise UserError(f"resume=auto: name the folder to look into, {key}=<folder>")
    elif config.resume is not None:
        raise UserError(f"resume={config.resume}: must be a run's folder, or auto")
    elif any(folder.glob(pattern)):
        raise UserError(f"{key}={folder}: there are runs in it; choose another folder, or add resume=auto")


def _describe_failure(run: Path) -> str:
    path = run / "failed.json"
    reason = json.loads(path.read_text(encoding="utf-8"))["reason"] if path.exists() else "it was stopped"
    return f"{run.name}: {reason}"
