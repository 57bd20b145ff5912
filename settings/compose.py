"""Hydra's composition; each of its errors as one line."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException, MissingConfigException
from hydra.initialize import get_gh_backup, restore_gh_from_backup
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from settings import hydra_patch
from settings.nested import walk
from settings.operating_system import usable_cpus
from settings.schema import SUPPLIED, Settings, UnknownKeyError, check
from settings.signatures import nearest
from utils import UserError, one_line

CONFIG_DIR = Path(__file__).resolve().parents[1] / "config"
AUTO = "auto"
FOLDERS = ("hydra.run.dir", "hydra.sweep.dir")
SEARCHPATH = "hydra.searchpath"

hydra_patch.install()
OmegaConf.register_new_resolver("product", lambda a, b: a * b, replace=True)
OmegaConf.register_new_resolver("smaller", lambda a, b: min(a, b), replace=True)


def plain(config: DictConfig) -> dict[str, Any]:
    """A composed configuration as resolved Python values, without Hydra's own node.

    Raises:
        UserError: for an interpolation that leads nowhere.
    """
    job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        return OmegaConf.to_container(job, resolve=True, throw_on_missing=True)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise UserError(one_line(error)) from None


def parse(overrides: list[str]) -> list[Override]:
    """Parses `key=value` and its kin; raises UserError at the first that is none."""
    found = []
    for text in overrides:
        try:
            config_loader = loader(overrides) if "glob(" in text else None
            (override,) = OverridesParser.create(config_loader).parse_overrides([text])
        except HydraException as error:
            raise UserError(_unreadable(text, error)) from None
        if not override.key_or_group:
            raise UserError(f"{text}: an override reads key=value")
        found.append(override)
    return found


def _unreadable(text: str, error: HydraException) -> str:
    key, _, value = text.partition("=")
    if not value.isascii() and key.isascii():
        return f"{text}: such letters have to be in quotes, and these in the shell's: \"{key}='{value}'\""
    said = one_line(error).split(" See https")[0]
    return f"{said if text in said else f'{text}: {said}'}; an override reads key=value"


def as_folder(text: str) -> str:
    """`hydra.run.dir=<name>`, as a shell gives it, with the name in Hydra's quotes if Hydra would read it as anything
    but a name: `exp/a,b` as a sweep, `exp/a (1)` as a function. Any other text as it is."""
    key, sign, name = text.partition("=")
    if key not in FOLDERS or not sign or not name.strip():
        return text
    try:
        (override,) = OverridesParser.create().parse_overrides([text])
        calls = "(" in name.replace("\\(", "") and name[0] not in "'\""  # str(1) is a text, too
        is_name = isinstance(override.value(), str | None) and not calls
    except HydraException:
        is_name = False
    return text if is_name else f"{key}={quoted(name)}"


def searching(folders: Iterable[str | Path]) -> str:
    """The override with which configurations are looked for in more folders."""
    return f"{SEARCHPATH}=[{','.join(quoted(f'file://{folder}') for folder in folders)}]"


def folders_of(overrides: list[str]) -> list[Path]:
    """Where configurations are looked for: this project's folder, and those that the overrides add."""
    given = [parse([text])[0].value() for text in overrides if text.startswith(f"{SEARCHPATH}=")]
    named = [str(path).removeprefix("file://") for paths in given if isinstance(paths, list) for path in paths]
    return [CONFIG_DIR, *(Path(name) for name in named if "://" not in name)]  # not pkg://


def choices(group: str, folders: list[Path]) -> list[Path]:
    """The files of a group by name, from the first folder that has one; a name that begins with _ is no choice."""
    found = {path.stem: path for folder in reversed(folders) for path in (folder / group).glob("[!_]*.yaml")}
    return [found[name] for name in sorted(found)]


def loader(overrides: Sequence[str] = ()) -> ConfigLoader:
    """Hydra's loader of configurations, with the folders that the overrides add."""
    around = get_gh_backup()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONFIG_DIR), job_name="train", version_base="1.3"):
            config_loader = GlobalHydra.instance().config_loader()
    finally:
        restore_gh_from_backup(around)
    added = searching(folders_of(list(overrides))[1:])
    options = partial(config_loader.get_group_options, overrides=[added])
    config_loader.get_group_options = options  # type: ignore[method-assign]
    return config_loader


def compose_config(config_name: str, overrides: list[str]) -> DictConfig:
    """Composes a configuration, Hydra's own node included.

    Raises:
        UserError: for an unknown key, choice or file.
    """
    around = get_gh_backup()  # within a job there is a Hydra already
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONFIG_DIR), job_name="train", version_base="1.3"):
            try:
                _refuse_no_choice(overrides)
                return compose(config_name, overrides, return_hydra_config=True)
            except MissingConfigException as error:
                raise UserError(_missing(error, folders_of(overrides))) from None
            except HydraException as error:
                raise UserError(_what_was_wrong(error, config_name, overrides)) from None
            except OmegaConfBaseException as error:
                raise UserError(one_line(error)) from None
    finally:
        restore_gh_from_backup(around)


def _what_was_wrong(error: HydraException, config_name: str, overrides: list[str]) -> str:
    cause = error.__cause__
    key = getattr(cause, "full_key", None)
    if not key:
        return one_line(error)
    if key.rsplit(".", 1)[-1] in SUPPLIED:
        return f"{key}: it comes from the environment and the run, not from the user"
    if "not in struct" in str(cause):
        chosen = [text for text in overrides if (CONFIG_DIR / text.partition("=")[0]).is_dir()]  # agent=crossq
        chosen.append(searching(folders_of(overrides)[1:]))
        known = ["preset", *dict(walk(plain(compose(config_name, chosen))))]
        return f"{key}: unknown key; {nearest(key, known)}"
    return f"{key}: {one_line(cause or error)}"


def _refuse_no_choice(overrides: list[str]) -> None:
    """Hydra fails on `group=null`, or a number, with an error that names nothing."""
    for override in parse(overrides):
        group = override.key_or_group
        if override.is_delete() or override.is_sweep_override() or not ("/" in group or (CONFIG_DIR / group).is_dir()):
            continue
        value = override.value()
        many = group == "preset"  # which may be none, or several
        if not (isinstance(value, str) and value) and not (many and (value is None or isinstance(value, list))):
            there = ", ".join(path.stem for path in choices(group, folders_of(overrides)))
            raise UserError(f"{override.input_line}: the name of a choice goes here; there are {there}")


def checked(config: DictConfig, overrides: list[str]) -> Settings:
    """`check` of what was composed of these overrides.

    Raises:
        UserError: as `check`; for an unknown key that a preset sets, with the preset's name.
    """
    try:
        return check(plain(config))
    except UnknownKeyError as error:
        given = {override.key_or_group: override.value() for override in parse(overrides) if not override.is_delete()}
        presets = given.get("preset")
        for name in presets if isinstance(presets, list) else [presets]:
            for path in choices("preset", folders_of(overrides)):
                if (
                    path.stem == name
                    and error.key not in given
                    and (why := _behind(error.key, path, config.agent.name))
                ):
                    raise UserError(f"preset={name}: {why}; choose another preset, or none") from None
        raise


def _behind(unknown: str, preset: Path, agent: str) -> str | None:
    """What this preset sets that makes a key unknown: the key itself, or the class of its node."""
    keys = dict(walk(OmegaConf.to_container(OmegaConf.load(preset))))  # type: ignore[arg-type]
    if unknown in keys:
        return f"it sets {unknown}, which agent={agent} does not have"
    node, _, key = unknown.rpartition(".")
    target = keys.get(f"{node}._target_")
    return target and f"it sets {node}._target_={target}, which does not have agent={agent}'s {key}"


def _missing(error: MissingConfigException, folders: list[Path]) -> str:
    name = str(error.missing_cfg_file)
    if name in EXTRAS:
        return f"{name.replace('er/', 'er=')}: not installed; pip install -e '.[{EXTRAS[name]}]'"
    group, _, choice = name.rpartition("/")
    there = ", ".join(path.stem for path in choices(group, folders))
    if there:
        return f"{group or '--config-name'}={choice}: no such choice; there are {there}"
    return one_line(error)


def with_params(params: Mapping[Any, str] | None, overrides: list[str]) -> list[str]:
    """`hydra.sweeper.params` as overrides, without the keys that the given overrides set, and these after them."""
    given = {override.get_key_element() for override in parse(overrides)}
    return [*(f"{key}={value}" for key, value in (params or {}).items() if key not in given), *overrides]


def quoted(text: str) -> str:
    """A text as Hydra reads it, whatever is in it."""
    return QuotedString(text, Quote.single).with_quotes()


EXTRAS = {  # of pyproject.toml, by the configuration of the launcher that they bring
    "hydra/launcher/joblib": "joblib",
    "hydra/launcher/submitit_slurm": "slurm",
    "hydra/launcher/submitit_local": "slurm",
    "hydra/launcher/ray": "ray",
}


def runs_at_once(device: str) -> int:
    """How many runs share a machine: one a GPU, or one a core where none is used."""
    import torch  # not before: a command line is composed and checked without it

    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    return gpus or usable_cpus()
