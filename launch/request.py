"""What a command line asks for: the runs, composed, with their types checked. Needs neither torch nor dm_control."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from launch.argv import arguments, overrides_of
from launch.launchers import TUNING
from settings import compose
from settings.compose import CONFIG_DIR, checked, compose_config, parse, with_params
from settings.schema import Settings, new_path
from utils import UserError, one_line

# Of a swept value Hydra's escapes and quotes go, too: env=my_pkg\:A-v0 is how Hydra hands a value to its jobs.
SLUG = str.maketrans({"/": "_", ":": "_", "\\": None, "'": None, '"': None})
OmegaConf.register_new_resolver("slug", lambda text: str(text).translate(SLUG), replace=True)
OmegaConf.register_new_resolver("runs_at_once", compose.runs_at_once, replace=True)


@dataclass(frozen=True)
class LaunchRequest:
    """The runs that a command line asks for.

    Attributes:
        parsed: its overrides.
        sweeping, tunes: whether it is a sweep, and one by Optuna.
        ranges: what is swept, by key, as it is written.
        config: as composed of the command line, each of its sweeps at its first value.
        configs: of each run that is checked; one for every swept value.
        overrides: what each was composed of.
    """

    parsed: list[Override]
    sweeping: bool
    tunes: bool
    ranges: dict[str, str]
    config: DictConfig
    configs: list[DictConfig]
    overrides: list[list[str]]

    def settings(self) -> list[Settings]:
        """The settings of each run; raises UserError at the first mistake."""
        return [checked(*run) for run in zip(self.configs, self.overrides, strict=True)]


def read(argv: list[str]) -> LaunchRequest | None:
    """Composes what a command line asks for; None where it asks for no run, but for help or a configuration.

    Raises:
        UserError: at the first mistake in a key or a choice.
    """
    args = arguments(argv)
    if args.help or args.hydra_help or args.shell_completion:
        return None
    base = overrides_of(args)
    config_name = args.config_name or "train"
    parsed = parse(base)
    for override in parsed:
        moved = new_path(override.key_or_group)
        if moved:
            raise UserError(f"{override.key_or_group}: that is called {moved} here")
    if args.cfg or args.info:
        compose_config(config_name, base)  # for its error, if it has one
        return None
    overrides = variants(parsed, base)[:1]
    config = compose_config(config_name, overrides[0])
    sweeping = args.multirun or str(config.hydra.mode) == "RunMode.MULTIRUN"
    tunes = sweeping and config.hydra.sweeper.get("_target_") == TUNING
    if not sweeping:
        if any(override.is_sweep_override() for override in parsed):
            compose_config(config_name, base)  # for its error
        return LaunchRequest(parsed, sweeping, tunes, {}, config, [config], overrides)
    base = with_params(config.hydra.sweeper.get("params"), base)
    every = parse(base)
    ranges = {o.get_key_element(): str(o.input_line).partition("=")[2] for o in every if o.is_sweep_override()}
    overrides = variants(every, base, tunes)
    if tunes:
        try:
            from launch import tuning  # not before: Optuna is optional
        except ImportError:  # there is none, or an older one
            install = "pip install -e '.[optuna]'"
            raise UserError(f"hydra/sweeper=tuning: Optuna 5 is not installed; {install}") from None
        tuning.require(config, every)
    configs = [compose_config(config_name, each) for each in overrides]
    return LaunchRequest(parsed, sweeping, tunes, ranges, config, configs, overrides)


def begun(argv: list[str]) -> tuple[Path, list[str], str | None] | None:
    """For `resume=auto` of one run: its folder, the overrides and the configuration's name, if it has a checkpoint."""
    args = arguments(argv)
    base = overrides_of(args)
    if args.multirun or not any(override.key_or_group == "hydra.run.dir" for override in parse(base)):
        return None
    config = compose_config(args.config_name or "train", base)
    folder = output_folder(config, "hydra.run.dir")
    if str(config.hydra.mode) == "RunMode.MULTIRUN" or not any(folder.glob("checkpoints/step_*")):
        return None
    return folder, [text for text in base if not text.startswith("hydra.run.")], args.config_name


def output_folder(config: DictConfig, key: str) -> Path:
    """The folder of a run, or of a sweep, by its key.

    Raises:
        UserError: for none, or one that is no place for runs.
    """
    folder = OmegaConf.select(config, key)
    if folder is None or not str(folder).strip():
        raise UserError(f"{key}=: the name of a folder goes here")
    if Path(str(folder)).resolve() == CONFIG_DIR.parent:
        raise UserError(f"{key}={folder}: that is this project's own folder; choose another")
    return Path(str(folder))


def variants(parsed: list[Override], overrides: list[str], intervals: bool = True) -> list[list[str]]:
    """One list of overrides for each swept value, with every other sweep at its first value.

    Args:
        intervals: whether what sweeps can take one; its ends are checked, and a fraction between them.
    """
    first = list(overrides)
    values: dict[int, list[str]] = {}  # by index into overrides
    for index, override in enumerate(parsed):
        if override.is_sweep_override():
            try:
                choices = override.value()
                if intervals and isinstance(choices, IntervalSweep):
                    low, high = choices.start, choices.end
                    assert low is not None and high is not None
                    whole = isinstance(low, int) and isinstance(high, int)
                    tried: Any = (low, high) if whole else (low, high, 0.6 * low + 0.4 * high)
                else:
                    tried = override.sweep_string_iterator()
                values[index] = [f"{override.get_key_element()}={value}" for value in tried]
                if not values[index]:
                    raise UserError(f"{override.input_line}: no value is left of it")
            except (ValueError, HydraException) as error:  # range(1,5,0)
                raise UserError(f"{override.input_line}: {one_line(error)}") from None
            first[index] = values[index][0]
    return [first] + [
        [*first[:index], value, *first[index + 1 :]] for index, choices in values.items() for value in choices[1:]
    ]
