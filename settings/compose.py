"""Composes the configuration with Hydra. Hydra's errors become one line each."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
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
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from yaml import YAMLError

from files.reading import read_text
from settings import hydra_patch, resolvers  # noqa: F401  (which patch Hydra, and register functions)
from settings.chosen_files import require_sound
from settings.keys import walk
from settings.schema import SUPPLIED, Settings, UnknownKeyError, check
from settings.signatures import nearest
from utils import UserError, one_line

CONFIG_DIR = Path(__file__).resolve().parents[1] / "config"
AUTO = "auto"
NEEDED = {field.name for field in fields(Settings) if field.default is MISSING and field.default_factory is MISSING}
FOLDERS = ("hydra.run.dir", "hydra.sweep.dir")
SEARCHPATH = "hydra.searchpath"
EXTRAS = {  # Hydra's configuration of a launcher -> the extra of pyproject.toml that provides it
    "hydra/launcher/joblib": "joblib",
    "hydra/launcher/submitit_slurm": "slurm",
    "hydra/launcher/submitit_local": "slurm",
    "hydra/launcher/ray": "ray",
}


def plain(config: DictConfig, resolve: bool = True) -> dict[str, Any]:
    """Converts a composed configuration to Python values, without Hydra's own node.

    Args:
        resolve: False leaves interpolations as text.

    Raises:
        UserError: for an interpolation that cannot be resolved.
    """
    job = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])  # type: ignore[misc]
    try:
        values = OmegaConf.to_container(job, resolve=resolve, throw_on_missing=resolve)
        return {str(key): value for key, value in values.items()}  # type: ignore[union-attr]
    except OmegaConfBaseException as error:
        raise UserError(omegaconf_message(error)) from None


def omegaconf_message(error: OmegaConfBaseException) -> str:
    """Returns OmegaConf's message in one line, with the key first."""
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key}=???: a value goes here"
    text, _, _ = one_line(error).partition(" full_key:")
    return f"{error.full_key}: {text}" if error.full_key else text


def parse(overrides: list[str]) -> list[Override]:
    """Parses overrides; raises UserError at the first that is not one."""
    parsed = []
    for text in overrides:
        try:
            config_loader = loader(overrides) if "glob(" in text else None
            (override,) = OverridesParser.create(config_loader).parse_overrides([text])
        except HydraException as error:
            key, _, value = text.partition("=")
            if not value.isascii() and key.isascii():
                hint = f"such letters have to be in quotes, and these in the shell's: \"{key}='{value}'\""
                raise UserError(f"{text}: {hint}") from None
            if not value or key.endswith(" "):
                raise UserError(f"{text}: an override reads key=value, without spaces around =") from None
            reason = one_line(error).split(" See https")[0]
            fault = reason if text in reason else f"{text}: {reason}"
            raise UserError(f"{fault}; an override reads key=value") from None
        if not override.key_or_group:
            raise UserError(f"{text}: an override reads key=value")
        parsed.append(override)
    return parsed


def as_folder(text: str) -> str:
    """Quotes the name in `hydra.run.dir=<name>` if Hydra would read it as something else, `exp/a,b` as a sweep or
    `exp/a (1)` as a function; returns any other override unchanged."""
    key, sign, name = text.partition("=")
    if key not in FOLDERS or not sign or not name.strip():
        return text
    try:
        (override,) = OverridesParser.create().parse_overrides([text])
        is_call = "(" in name.replace("\\(", "") and name[0] not in "'\""  # str(1) would give a string, too
        is_name = isinstance(override.value(), str | None) and not is_call
    except HydraException:
        is_name = False
    return text if is_name else f"{key}={quoted(name)}"


def searching(folders: Iterable[str | Path]) -> str:
    """Returns the override that adds folders to the search path."""
    return f"{SEARCHPATH}=[{','.join(quoted(f'file://{folder}') for folder in folders)}]"


def folders_of(overrides: list[str]) -> list[Path]:
    """Returns the folders of the search path: config/ of this project, and those that the overrides add."""
    added = [parse([text])[0].value() for text in overrides if text.startswith(f"{SEARCHPATH}=")]
    names = [str(path).removeprefix("file://") for paths in added if isinstance(paths, list) for path in paths]
    return [CONFIG_DIR, *(Path(name) for name in names if "://" not in name)]  # not pkg://


def choices(group: str, folders: list[Path]) -> list[Path]:
    """Returns a group's files by name, each from the first folder that has it; leaves out names that begin with _."""
    paths = {path.stem: path for folder in reversed(folders) for path in (folder / group).glob("[!_]*.yaml")}
    return [paths[name] for name in sorted(paths)]


@contextmanager
def _own_hydra() -> Iterator[None]:
    """Initialises Hydra for config/, and afterwards restores the instance that exists within a job."""
    outer = get_gh_backup()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONFIG_DIR), job_name="train", version_base="1.3"):
            yield
    finally:
        restore_gh_from_backup(outer)


def loader(overrides: Sequence[str] = ()) -> ConfigLoader:
    """Returns Hydra's configuration loader, which also searches the folders that the overrides add."""
    with _own_hydra():
        config_loader = GlobalHydra.instance().config_loader()
    added = searching(folders_of(list(overrides))[1:])
    options = partial(config_loader.get_group_options, overrides=[added])
    config_loader.get_group_options = options  # type: ignore[method-assign]
    return config_loader


def compose_config(config_name: str, overrides: list[str]) -> DictConfig:
    """Composes a configuration, including Hydra's own node; raises UserError for an unknown key, choice or file."""
    with _own_hydra():
        try:
            _require_choices(overrides)
            return compose(config_name, overrides, return_hydra_config=True)
        except MissingConfigException as error:
            name = str(error.missing_cfg_file)
            if name in EXTRAS:
                missing = f"{name.replace('er/', 'er=')}: not installed; pip install -e '.[{EXTRAS[name]}]'"
                raise UserError(missing) from None
            group, _, choice = name.rpartition("/")
            names = ", ".join(path.stem for path in choices(group, folders_of(overrides)))
            fault = f"{group or '--config-name'}={choice}: no such choice; there are {names}"
            raise UserError(fault if names else one_line(error)) from None
        except HydraException as error:
            raise UserError(_composition_error(error, config_name, overrides)) from None
        except OmegaConfBaseException as error:
            raise UserError(omegaconf_message(error)) from None
        except YAMLError as error:
            raise UserError(one_line(error)) from None
        except UnicodeDecodeError as error:
            raise UserError(f"a YAML file of the configuration is not UTF-8 ({error})") from None
        except RecursionError:
            raise UserError("a YAML file of the configuration has itself among its defaults") from None


def _composition_error(error: HydraException, config_name: str, overrides: list[str]) -> str:
    cause = error.__cause__
    key = getattr(cause, "full_key", None)
    if not key:
        text = one_line(error)
        if absent := re.match("Could not override '(.+?)'", text):
            return f"{absent[1]}: what was chosen has no such part; leave it out"
        if deleted := re.match("Could not delete from config. '(.+?)'", text):
            known = _known_keys(config_name, overrides)
            if deleted[1] in known:
                return f"~{deleted[1]}: it is null already; leave it out"
            return f"~{deleted[1]}: unknown key; {nearest(deleted[1], known)}"
        if ambiguous := re.match("Ambiguous value for argument '(.+?)'", text):
            key, _, value = ambiguous[1].partition("=")
            return f"{ambiguous[1]}: a sweep needs -m; a list is written {key}=[{value}]"
        added = (override for override in overrides if override.startswith("+"))
        twice = next((each for each in added if f" {each[1:].partition('=')[0]}." in text), None)
        return f"{twice}: write {twice[1:]}, which replaces the choice" if twice else text
    if key.rsplit(".", 1)[-1] in SUPPLIED:
        return f"{key}: it comes from the environment and the run, not from the user"
    if "not in struct" in str(cause):
        return f"{key}: unknown key; {nearest(key, _known_keys(config_name, overrides))}"
    assert isinstance(cause, OmegaConfBaseException)  # others have no full_key
    return omegaconf_message(cause)


def _known_keys(config_name: str, overrides: list[str]) -> list[str]:
    """Returns the keys that exist with the choices in these overrides, such as agent=crossq."""
    chosen = [text for text in overrides if (CONFIG_DIR / text.partition("=")[0]).is_dir()]
    chosen.append(searching(folders_of(overrides)[1:]))
    return ["preset", *dict(walk(plain(compose(config_name, chosen))))]


def _require_choices(overrides: list[str]) -> None:
    """Raises UserError where Hydra's error would not name the key: absent folders, `key=???`, `group=null`, numbers."""
    for folder in folders_of(overrides):
        if not folder.is_dir():
            raise UserError(f"{SEARCHPATH}={folder}: there is no such folder")
    parsed = parse(overrides)
    set_keys = {override.key_or_group for override in parsed if not override.is_delete()}
    for override in parsed:
        group = override.key_or_group
        if override.is_delete() and group in NEEDED - set_keys:
            raise UserError(f"{override.input_line}: a run needs this key; set it, {group}=<value>")
        if override.is_delete() or override.is_sweep_override():
            continue
        value = override.value()
        if value == "???":  # OmegaConf's own sign for a missing value
            raise UserError(f"{override.input_line}: a value goes here")
        if not ("/" in group or (CONFIG_DIR / group).is_dir()):
            continue
        named = value if isinstance(value, list) and group == "preset" else [value]  # preset takes lists, and null
        are_names = all(isinstance(name, str) and name not in ("", "???") for name in named)
        if group in ("preset", "agent") and are_names:
            files = {path.stem: path for path in choices(group, folders_of(overrides))}
            for name in named:
                if name in files:
                    require_sound(group, files[str(name)])
        is_node = isinstance(value, dict) and "_target_" in value
        if not (are_names or is_node or (group == "preset" and value is None)):
            names = ", ".join(path.stem for path in choices(group, folders_of(overrides)))
            raise UserError(f"{override.input_line}: the name of a choice goes here; there are {names or 'none'}")


def checked(config: DictConfig, overrides: list[str]) -> Settings:
    """Checks a configuration that was composed from these overrides.

    Raises:
        UserError: as `settings.schema.check`; for an unknown key that a preset sets, the message names the preset.
    """
    try:
        return check(plain(config))
    except UnknownKeyError as error:
        values = {override.key_or_group: override.value() for override in parse(overrides) if not override.is_delete()}
        chosen = values.get("preset")
        names = chosen if isinstance(chosen, list) else [chosen]
        for path in choices("preset", folders_of(overrides)) if error.key not in values else ():
            similar = re.search(r"did you mean .*\?", str(error))
            hint = f" ({similar[0]})" if similar else ""
            reason = _reason_in_preset(error.key, path, config.agent.name, hint) if path.stem in names else None
            if reason:
                raise UserError(f"preset={path.stem}: {reason}") from None
        raise


def _reason_in_preset(unknown: str, preset: Path, agent: str, hint: str) -> str | None:
    """Says which setting of a preset makes a key unknown: the key itself, or the class of its node; None if neither."""
    keys = dict(walk(OmegaConf.to_container(OmegaConf.create(read_text(preset, inside=0)))))  # type: ignore[arg-type]
    node, _, key = unknown.rpartition(".")
    if unknown in keys and not node:
        return f"it sets {unknown}, which is no key{hint}; correct {preset}"
    otherwise = "choose another preset, or none"
    if unknown in keys:
        lacking = f"agent={agent}" if node.startswith("agent") else f"this run's {node}"
        return f"it sets {unknown}, which {lacking} does not have{hint}; {otherwise}"
    target = keys.get(f"{node}._target_")
    return target and f"it sets {node}._target_={target}, which does not have agent={agent}'s {key}; {otherwise}"


def with_params(params: Mapping[Any, str] | None, overrides: list[str]) -> list[str]:
    """Puts `hydra.sweeper.params` in front of the overrides, except for keys that the overrides set."""
    set_keys = {override.get_key_element() for override in parse(overrides)}
    return [*(f"{key}={value}" for key, value in (params or {}).items() if key not in set_keys), *overrides]


def quoted(text: str) -> str:
    """Quotes any text so that Hydra reads it as a string."""
    return QuotedString(text, Quote.single).with_quotes()
