"""Checks a command before Hydra makes a folder, says in a line what is wrong, and lists what a sweep lacks at last."""

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.errors import HydraException, MissingConfigException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from settings.compose import CONFIG_DIR, compose_config
from settings.schema import check, get_values, suggest
from utils import RunError, UserError, dotted, one_line

AUTO = "auto"  # value of `resume`
EXTRAS = {"joblib": "joblib", "submitit_slurm": "slurm", "submitit_local": "slurm", "ray": "ray"}  # of pyproject.toml


class Ending(BaseException):
    """Carries an error out of Hydra's job or callback, as Hydra would add lines of its own, or only warn."""


class CheckFirst(Callback):
    """Checks the values of a run, or of a sweep's first run; a sweep's other values are checked by their own runs."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        with _ending():
            check(get_values(config))
            _require_free(config, "hydra.run.dir", "config.yaml")

    def on_multirun_start(self, config: DictConfig, **run: Any) -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, it ends joblib's workers, too
        with _ending():
            overrides = parse_sweep(config)
            check(get_values(compose(run["config_name"], [_take_first(override) for override in overrides])))
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


def explain(error: HydraException | OmegaConfBaseException) -> UserError:
    """Returns what Hydra or OmegaConf found wrong in one line, which names the key and what would be right."""
    if isinstance(error, MissingConfigException):
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if group == "hydra/launcher" and name in EXTRAS:
            return UserError(f"hydra/launcher={name}: not installed; pip install -e '.[{EXTRAS[name]}]'")
        choices = ", ".join(sorted(choice for choice in error.options or () if not choice.startswith("_")))
        return UserError(f"{group or '--config-name'}={name}: no such choice; there are {choices}")
    cause: Any = error.__cause__ or error
    absent = re.match(r"Could not (?:override|append to config|delete from config)[^']*'([^'=]+)", str(error))
    key = absent[1] if absent else getattr(cause, "full_key", None)
    if key and ("not in struct" in str(cause) or absent):
        hint = suggest(key, ["preset", *_list_keys()]) or "`python train.py --help` lists them"
        if key.startswith(("env_kwargs", "info_keys")):  # only the environment knows its keys
            hint = f"a plus adds it: +{key}=<value>"
        return UserError(f"{key}: unknown key; {hint}")
    text = one_line(cause).partition(" full_key:")[0].partition(" See https://")[0]
    return UserError(f"{key}: {text}" if key else text)


def _list_keys() -> list[str]:
    """Returns all dotted keys, with the groups that the command line chooses, such as agent=crossq."""
    chosen = [text for text in sys.argv[1:] if (CONFIG_DIR / text.partition("=")[0]).is_dir() and "," not in text]
    try:
        return list(dotted(OmegaConf.to_container(compose_config(chosen))))
    except HydraException:  # a wrong choice
        return []
