"""What a command line asks for: a run, a sweep, a run to continue, or something to print.

Reading it composes the configuration, once, and finds unknown keys, choices and tasks. It needs neither torch nor
dm_control, so such a mistake is answered in under a second. Values are checked by `Runs.settings`, which imports the
classes that they go to.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from envs import names
from launch.argv import CommandLine, parse_line
from launch.launchers import TUNING
from run.saving import trust
from settings.compose import AUTO, CONFIG_DIR, checked, compose_config, omegaconf_message, parse, plain, with_params
from settings.schema import Settings, new_path
from utils import UserError, one_line

OF_SWEEPS = ("hydra/launcher", "hydra/sweeper", "hydra.launcher.", "hydra.sweeper.", "hydra.sweep.")


class Continued(NamedTuple):
    """A run to continue, overrides of its configuration, and the configuration's name."""

    folder: Path
    overrides: list[str]
    config_name: str


@dataclass(frozen=True)
class Runs:
    """One new run, or the runs of a sweep.

    Attributes:
        parsed: the overrides on the command line.
        every: those, and the preset's (`hydra.sweeper.params`).
        sweeping, tunes: whether it is a sweep, and whether Optuna chooses its values.
        ranges: the text of each swept key's values.
        config: the configuration, with the first value of every swept key.
        configs: the configurations to check; one for every swept value.
        overrides: the overrides of each of `configs`.
    """

    parsed: list[Override]
    every: list[Override]
    sweeping: bool
    tunes: bool
    ranges: dict[str, str]
    config: DictConfig
    configs: list[DictConfig]
    overrides: list[list[str]]

    @property
    def number(self) -> int:
        """The number of runs in a sweep, or of trials in a study, including those of an earlier start."""
        if self.tunes:
            return int(self.config.hydra.sweeper.n_trials)
        return math.prod(
            sum(1 for _ in each.sweep_string_iterator()) for each in self.every if each.is_sweep_override()
        )

    def sets(self, key: str) -> bool:
        """Returns whether an override on the command line sets the key."""
        return any(override.key_or_group == key for override in self.parsed)

    def settings(self) -> list[Settings]:
        """Returns the settings of each run to check; raises UserError at the first mistake."""
        return [checked(*run) for run in zip(self.configs, self.overrides, strict=True)]


class LaunchRequest(NamedTuple):
    """What a command line asks for: a run to continue, new runs or, if both are None, something to print."""

    line: CommandLine
    continued: Continued | None
    runs: Runs | None


def read(argv: list[str]) -> LaunchRequest:
    """Reads a command line; raises UserError at the first mistake in a key, a choice or a task's name."""
    line = parse_line(argv)
    options = line.options
    if options.tasks or options.help or options.hydra_help or options.shell_completion:
        return LaunchRequest(line, None, None)
    if line.resume not in (None, AUTO):
        return LaunchRequest(line, Continued(Path(line.resume), line.argv, "train"), None)
    runs = _runs(line)
    for config in runs.configs if runs else ():
        if "env" in config:
            env = str(plain(config)["env"])
            names.require_known(env)
            trust.refuse_standard(env)
    continued = _begun(line, runs) if line.resume and runs else None
    return LaunchRequest(line, continued, None if continued else runs)


def _begun(line: CommandLine, runs: Runs) -> Continued | None:
    """Returns the run that `resume=auto` continues; None if it is no single run, or its folder has no checkpoint."""
    if runs.sweeping or not runs.sets("hydra.run.dir"):
        return None
    folder = output_folder(runs.config, "hydra.run.dir")
    if not any(folder.glob("checkpoints/step_*")):
        return None
    overrides = [text for text in line.overrides if not text.startswith("hydra.run.")]
    return Continued(folder, overrides, line.options.config_name)


def _runs(line: CommandLine) -> Runs | None:
    """Returns the new runs; None if Hydra is to print a configuration."""
    base, name = line.overrides, line.options.config_name
    parsed = parse(base)
    for override in parsed:
        moved = new_path(override.key_or_group)
        if moved:
            raise UserError(f"{override.key_or_group}: that is called {moved} here")
    if line.options.cfg or line.options.info:
        compose_config(name, base)  # for its error, if it has one
        return None
    first = variants(parsed, base)[0]
    config = compose_config(name, first)
    sweeping = line.options.multirun or str(config.hydra.mode) == "RunMode.MULTIRUN"
    if not sweeping:
        if first != base:
            compose_config(name, base)  # for its error: a value for each run of a sweep, and no sweep
        for override in parsed:
            if (key := override.key_or_group).startswith(OF_SWEEPS):
                raise UserError(f"{key}: it is for a sweep, which -m starts")
        return Runs(parsed, parsed, False, False, {}, config, [config], [first])
    if any(override.key_or_group == "hydra.run.dir" for override in parsed):
        raise UserError("hydra.run.dir: it is for a single run; the folder of a sweep is hydra.sweep.dir")
    base = with_params(config.hydra.sweeper.get("params"), base)
    every = parse(base)
    ranges = {o.get_key_element(): str(o.input_line).partition("=")[2] for o in every if o.is_sweep_override()}
    tunes = config.hydra.sweeper.get("_target_") == TUNING
    overrides = variants(every, base, tunes)
    if tunes:
        try:
            from launch import tuning  # not before: Optuna is optional
        except ImportError:  # Optuna is missing or too old
            install = "pip install -e '.[optuna]'"
            raise UserError(f"hydra/sweeper=tuning: Optuna 5 is not installed; {install}") from None
        tuning.require(config, every)
    configs = [config if texts == first else compose_config(name, texts) for texts in overrides]
    return Runs(parsed, every, True, tunes, ranges, config, configs, overrides)


def output_folder(config: DictConfig, key: str) -> Path:
    """Returns the folder of a run or sweep, by its key; refuses an empty name, and this project's own folder."""
    try:
        folder = OmegaConf.select(config, key)
    except OmegaConfBaseException as error:
        raise UserError(omegaconf_message(error)) from None
    if folder is None or not folder.strip():
        raise UserError(f"{key}=: the name of a folder goes here")
    path = Path(folder).expanduser()  # a shell leaves hydra.run.dir=~/runs as it is
    if path.resolve() == CONFIG_DIR.parent:
        raise UserError(f"{key}={folder}: that is this project's own folder; choose another")
    return path


def variants(parsed: list[Override], overrides: list[str], intervals: bool = True) -> list[list[str]]:
    """Returns a list of overrides for each swept value, with every other swept key at its first value.

    Args:
        intervals: whether the sweeper takes intervals; both ends are checked, and a fraction between them.
    """
    swept = {index: _values(each, intervals) for index, each in enumerate(parsed) if each.is_sweep_override()}
    first = [swept[index][0] if index in swept else text for index, text in enumerate(overrides)]
    others = [(index, value) for index, values in swept.items() for value in values[1:]]
    return [first, *([*first[:index], value, *first[index + 1 :]] for index, value in others)]


def _values(override: Override, intervals: bool) -> list[str]:
    """Returns an override for each value to check of a swept key."""
    try:
        choices = override.value()
        if intervals and isinstance(choices, IntervalSweep):
            low, high = choices.start, choices.end
            assert low is not None and high is not None
            whole = isinstance(low, int) and isinstance(high, int)
            tried: Any = (low, high) if whole else (low, high, 0.6 * low + 0.4 * high)
        else:
            tried = override.sweep_string_iterator()
        texts = [f"{override.get_key_element()}={value}" for value in tried]
    except (ValueError, HydraException) as error:  # range(1,5,0)
        raise UserError(f"{override.input_line}: {one_line(error)}") from None
    if not texts:
        raise UserError(f"{override.input_line}: no value is left of it")
    return texts
