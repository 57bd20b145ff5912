"""The keys of config/train.yaml with their types, and the one check that every value fits, before a folder is made.

The keys of a node are the parameters of the class that its `_target_` names, and their annotations are its types. Only
this project's annotations are enforced; another package's may say more than it accepts.
"""

import difflib
import importlib
import inspect
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from omegaconf import DictConfig, OmegaConf
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from settings.env_ids import require_known
from settings.types import (
    Execution,
    NonNegativeInt,
    PositiveInt,
    Schedule,
    Storage,
    UnitInterval,
)
from utils import UserError, one_line

ROOT = Path(__file__).resolve().parents[1]
ONLY_IN = "only_in"  # key of a wrapper's node: the environments that it is limited to
Place = Literal["training", "evaluation"]
# Keys of an agent's YAML that set the defaults of the run's keys of the same names.
AGENT_DEFAULTS_FOR_RUN = (
    *("updates_per_step", "from_pixels", "action_repeat", "num_seed_steps", "replay_buffer_capacity"),
    "action_repeats",  # action_repeat by task
)
# What the command line alone says, and no saved configuration.
OF_THE_COMMAND = ("hydra", "resume")
NO_PARAMETERS = ("_target_", "_partial_", "name")
# A number is a valid label: experiment=1.
PYDANTIC = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False, coerce_numbers_to_str=True)


@dataclass(frozen=True)
class Settings:
    """The keys of config/train.yaml, which explains them."""

    env: str
    env_kwargs: dict[str, Any]
    env_wrappers: list[dict[str, Any]]
    experiment: str
    num_train_steps: PositiveInt
    action_repeat: PositiveInt
    num_envs: Annotated[int, Gt(0), Le(65_536)]
    stagger_steps: NonNegativeInt
    async_envs: bool
    physics: Literal["auto", "suite", "batched", "warp"]
    seed: Annotated[int, Ge(0), Lt(2**32)]
    from_pixels: bool
    image_size: Annotated[int, Ge(8), Le(1024)]
    frame_stack: Annotated[int, Ge(1), Le(16)] | Literal["auto"]
    obs_groups: dict[Literal["actor", "critic"], list[str]] | None
    camera_id: NonNegativeInt | Literal["auto"]
    image_pad: NonNegativeInt
    replay_buffer_capacity: PositiveInt
    sample_with_replacement: bool
    n_step: PositiveInt
    reward_scale: float | Schedule
    preload: str | list[str] | None
    preload_share: UnitInterval
    num_seed_steps: NonNegativeInt
    seed_policy: str
    min_buffer_size: NonNegativeInt
    updates_while_seeding: bool
    update_every: PositiveInt
    updates_per_step: Annotated[float, Gt(0), Le(1000)]
    eval_frequency: PositiveInt
    num_eval_episodes: Annotated[int, Gt(0), Le(100_000)]
    eval_in_background: bool | Literal["auto"]
    checkpoint_frequency: NonNegativeInt
    keep_checkpoints: PositiveInt
    save_replay_buffer: bool
    device: str
    precision: Literal["auto", "fp32", "tf32"]
    execution: Execution
    replay_storage: Storage
    num_threads: Annotated[int, Gt(0), Le(1024)] | None
    info_keys: dict[str, Literal["last", "sum"]]
    log_frequency: NonNegativeInt
    log_save_tb: bool
    log_save_wandb: bool
    save_video: bool
    save_figure: bool
    agent: dict[str, Any]
    replay_buffer: dict[str, Any]
    logger: dict[str, Any]
    evaluator: dict[str, Any]


def get_values(config: DictConfig) -> dict[str, Any]:
    """Converts a composed configuration to plain values, with interpolations resolved, without Hydra's own node."""
    job = OmegaConf.masked_copy(config, [key for key in config if key not in OF_THE_COMMAND])  # type: ignore[misc]
    return OmegaConf.to_container(job, resolve=True, throw_on_missing=True)  # type: ignore[return-value]


def check(values: dict[str, Any]) -> Settings:
    """Checks every value of a configuration against the parameter that it becomes.

    Returns:
        The settings, with values converted: 1e6 to an int, a list to a tuple.

    Raises:
        UserError: for an unknown task or key, a class that cannot be imported, or a value of the wrong type or range.
    """
    require_known(str(values["env"]))  # first, as what follows may import torch
    agent = {key: value for key, value in values["agent"].items() if key not in AGENT_DEFAULTS_FOR_RUN}
    checked = _check_call(Settings, values | {"agent": agent}, "")
    wrappers = [{"_partial_": True, **node} for node in checked["env_wrappers"]]
    return Settings(**checked | {"env_wrappers": wrappers})


def _check_value(hint: Any, value: Any, path: str) -> Any:
    """Checks the nodes in a value at any depth; a value without nodes is converted to the type of its hint."""
    if isinstance(value, dict) and "_target_" in value:
        return _check_call(_import_target(value["_target_"], path), value, f"{path}.")
    if _has_node(value):
        children = value.items() if isinstance(value, dict) else enumerate(value)
        checked = {key: _check_value(Any, child, f"{path}.{key}") for key, child in children}
        return checked if isinstance(value, dict) else list(checked.values())
    try:
        return _make_adapter(hint).validate_python(value)
    except ValidationError as error:
        raise UserError(f"{path}={'null' if value is None else value}: {_explain(error)}") from None


def _check_call(target: Any, values: dict[str, Any], path: str) -> dict[str, Any]:
    """Checks the values of one node against the parameters of its class; `path` is its key and a dot."""
    hints, takes_others = get_parameters(target)
    is_ours = _is_ours(target)
    checked = {}
    for key, value in values.items():
        if key == ONLY_IN:
            checked[key] = _check_value(Place, value, path + key)
        elif key in NO_PARAMETERS and path:
            checked[key] = value
        elif key in hints or takes_others:
            checked[key] = _check_value(hints.get(key, Any) if is_ours else Any, value, path + key)
        else:
            known = f"{values['_target_']} has {', '.join(sorted(hints))}" if path else "--help lists them"
            raise UserError(f"{path}{key}={value}: unknown key; {suggest(key, hints) or known}")
    return checked


def get_parameters(target: Any) -> tuple[dict[str, Any], bool]:
    """Returns the hints of a class's or function's parameters, and whether it takes any other keyword.

    A class's `**keywords` stand for the parameters of the next class in its MRO.
    """
    if isinstance(target, partial):
        return get_parameters(target.func)
    hints: dict[str, Any] = {}
    takes_others = False
    for owner in target.__mro__ if inspect.isclass(target) else [target]:
        function = vars(owner).get("__init__") if inspect.isclass(owner) else owner
        if function is None or owner is object:
            continue
        try:
            parameters, types = inspect.signature(function).parameters, get_type_hints(function, include_extras=True)
        except (ValueError, TypeError, NameError):  # a builtin, or annotations that cannot be evaluated
            return hints, True
        takes_others = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        named = [name for name, parameter in parameters.items() if parameter.kind not in variadic]
        hints = {name: types.get(name, Any) for name in named if name != "self"} | hints
        if not takes_others:
            break
    return hints, takes_others and not inspect.isclass(target)


def suggest(key: str, known: Iterable[str]) -> str:
    """Returns "did you mean …?" with the keys of the nearest name, or of the nearest last part; "" if none is near."""
    known = [name for name in known if not name.rpartition(".")[2].startswith("_")]
    near = difflib.get_close_matches(key, known, 2, 0.75)
    if not near:
        by_last_part = {name.rpartition(".")[2]: name for name in reversed(known)}
        near = [by_last_part[part] for part in difflib.get_close_matches(key.rpartition(".")[2], by_last_part, 2)]
    return f"did you mean {' or '.join(near)}?" if near else ""


def _import_target(name: Any, path: str) -> Any:
    module, _, attribute = str(name).rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing a user's module can raise anything
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]
        hint = "; is its folder in PYTHONPATH?" if is_absent else ""
        raise UserError(f"{path}._target_={name}: cannot be imported ({one_line(error)}){hint}") from error


def _is_ours(target: Any) -> bool:
    name = getattr(target, "__module__", "")
    file = Path(getattr(sys.modules.get(name), "__file__", None) or "/")
    top = name.partition(".")[0]
    return file.is_relative_to(ROOT / top) or file == ROOT / f"{top}.py"


def _has_node(value: Any) -> bool:
    if isinstance(value, dict):
        return "_target_" in value or any(map(_has_node, value.values()))
    return isinstance(value, list) and any(map(_has_node, value))


@cache
def _make_adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=PYDANTIC)
    except PydanticSchemaGenerationError:  # a hint that pydantic cannot check
        return TypeAdapter(Any)


def _explain(error: ValidationError) -> str:
    message = error.errors(include_url=False)[0]["msg"]
    return message.replace("Input should", "must").replace("Value error, ", "").partition(", unable to parse")[0]
