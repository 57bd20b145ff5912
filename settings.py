"""The configuration's types: a key's type is the annotation of the parameter that it becomes."""

import difflib
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Literal, NamedTuple, Unpack, get_args, get_origin, get_type_hints

from annotated_types import Ge, Lt
from pydantic import ConfigDict, TypeAdapter, ValidationError

from utils import Execution, Factory, NonNegativeInt, PositiveFloat, PositiveInt, Schedule, Storage, UserError

# Parameters that code fills in, never YAML; the temperature's comes from the agent's key of that name.
SUPPLIED = {"obs_dim", "action_dim", "action_range", "device", "log_dir", "make_env", "video_path"} | {
    *("shape", "width", "num_members")  # of networks and layers, from their actor or critic
}
FROM_AGENT = {"init_temperature"}
NOT_PARAMETERS = {"_target_", "_partial_"}
OLD_PATHS = (  # system A's, and where they went
    ("double_q_critic.params.", "agent.critic."),
    ("diag_gaussian_actor.params.", "agent.actor."),
    ("agent.params.", "agent."),
    ("agent.class", "agent._target_"),
)


@dataclass(frozen=True)
class Settings:
    """The keys of `config/train.yaml`, explained there; `agent`, `logger` and `evaluator` are nodes of their own."""

    env: str
    experiment: str
    num_train_steps: PositiveInt
    replay_buffer_capacity: PositiveInt
    n_step: PositiveInt
    sample_with_replacement: bool
    reward_scale: float | Schedule
    num_seed_steps: NonNegativeInt
    seed_policy: str
    min_buffer_size: NonNegativeInt
    update_every: PositiveInt
    updates_per_step: PositiveFloat
    action_repeat: PositiveInt
    num_envs: PositiveInt
    async_envs: bool
    env_timeout_s: PositiveFloat
    eval_frequency: PositiveInt
    num_eval_episodes: PositiveInt
    checkpoint_frequency: NonNegativeInt
    keep_checkpoints: PositiveInt
    save_replay_buffer: bool
    grace_s: PositiveFloat
    device: str
    precision: Literal["auto", "fp32", "tf32", "bf16"]
    execution: Execution
    replay_storage: Storage
    num_threads: PositiveInt | None
    log_frequency: NonNegativeInt
    log_every_steps: NonNegativeInt
    log_save_tb: bool
    log_save_wandb: bool
    save_video: bool
    save_figure: bool
    seed: Annotated[int, Ge(0), Lt(2**32)]
    agent: dict[str, Any]
    logger: dict[str, Any]
    evaluator: dict[str, Any]


def check(config: dict[str, Any]) -> Settings:
    """Checks every value of a resolved configuration against the signature it will be passed to.

    Args:
        config: train.yaml as plain Python values, after every override.

    Returns:
        The settings, with integral floats such as 1e6 turned into ints.

    Raises:
        UserError: for an unknown key, a missing one, or a value of the wrong type or range.
    """
    agent = dict(config.get("agent") or {})
    name = agent.pop("name", None)
    agent.pop("updates_per_step", None)  # what an agent asks for arrives in the key of that name, unless that is set
    checked = _check_call(Settings, {**config, "agent": agent}, "")
    for key in ("agent", "logger", "evaluator"):
        _require_partial(checked[key], key)
    if not isinstance(name, str) or not name:
        raise UserError(f"agent.name={name}: a word for the run folder's name goes here")
    checked["agent"] = {"name": name, **checked["agent"]}
    return Settings(**checked)


def _check_call(target: Any, values: dict[str, Any], path: str) -> dict[str, Any]:
    """Checks one node's values against the target's parameters and returns them converted."""
    parameters = _parameters(target)
    checked = {}
    for key, value in values.items():
        if key in NOT_PARAMETERS:
            checked[key] = value
        elif key in SUPPLIED and path:
            raise UserError(f"{path}{key}={value}: it comes from the environment and the run, not from the user")
        elif key not in parameters:
            known = parameters if path else flatten(values)
            raise UserError(f"{path}{key}={value}: unknown key; {nearest(key, set(known) - {key}, path)}")
        else:
            checked[key] = _check_value(parameters[key].hint, value, path + key)
    for key, parameter in parameters.items():
        given = key in values or key in SUPPLIED or key in FROM_AGENT
        if not given and parameter.required:
            raise UserError(f"{path}{key} is missing; it has no default")
    return checked


class _Parameter(NamedTuple):
    hint: Any
    required: bool


def _parameters(target: Any) -> dict[str, _Parameter]:
    """What a class or a function can be called with; of `**shared: Unpack[Keys]`, what the TypedDict Keys names."""
    function = target.func if isinstance(target, partial) else target
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function, include_extras=True)
    found: dict[str, _Parameter] = {}
    for name, parameter in inspect.signature(target).parameters.items():
        hint = hints.get(name, Any)
        if get_origin(hint) is Unpack:
            (keys,) = get_args(hint)
            named = get_type_hints(keys, include_extras=True)
            found |= {key: _Parameter(kind, key in keys.__required_keys__) for key, kind in named.items()}
        else:
            found[name] = _Parameter(hint, parameter.default is parameter.empty)
    return found


def _check_value(hint: Any, value: Any, path: str) -> Any:
    if isinstance(value, dict):
        if "_target_" in value:
            if Factory in _leaves(hint):
                _require_partial(value, path)
            return _check_call(_locate(value["_target_"], path), value, f"{path}.")
        if get_origin(hint) is dict and Factory in get_args(get_args(hint)[1]):  # nodes by name, some switched off
            return {
                key: _check_value(Factory, child, f"{path}.{key}") if child else None for key, child in value.items()
            }
    if Factory in (hint, *get_args(hint)) and value is not None:
        raise UserError(
            f"{path}={value}: a group of keys goes here; set one of them, {path}.<key>=<value>, "
            f"or choose another group where there are several, {path.replace('.', '/')}=<name>"
        )
    accepts = list(_leaves(hint))
    if isinstance(value, bool) and (int in accepts or float in accepts) and bool not in accepts:
        raise UserError(f"{path}={value}: a number goes here")
    try:
        # A number is a fine label: experiment=1.
        config = ConfigDict(coerce_numbers_to_str=True, allow_inf_nan=False)
        return TypeAdapter(hint, config=config).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = first["msg"].replace("Input should", "it should").replace("Value error, ", "")
        raise UserError(f"{path}={value}: {message}") from None


def _require_partial(node: dict[str, Any], path: str) -> None:
    if not node.get("_partial_"):
        raise UserError(f"{path}: the code completes this node with shapes or folders; it has to say _partial_: true")


def _leaves(hint: Any) -> Iterator[Any]:
    """The plain types in a union of annotated ones."""
    yield hint
    for part in get_args(hint):
        yield from _leaves(part)


def _locate(dotted: str, path: str) -> Any:
    module, _, name = str(dotted).rpartition(".")
    try:
        found = getattr(import_module(module), name)
        if not callable(found):
            raise ValueError("a class or a function goes here")
        return found
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{path}._target_={dotted}: cannot be imported ({error})") from None


def flatten(config: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Every key of a nested configuration, dotted; groups too."""
    for key, value in config.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")


def nearest(key: str, known: Iterable[str], path: str = "") -> str:
    """`did you mean ...?`, by the whole key first and by its last part otherwise; or a pointer to the list."""
    known = [name for name in known if not name.rsplit(".", 1)[-1].startswith("_")]
    matches = difflib.get_close_matches(key, known, n=2, cutoff=0.6)
    if not matches:
        last = key.rsplit(".", 1)[-1]
        by_last: dict[str, str] = {}
        for name in known:
            by_last.setdefault(name.rsplit(".", 1)[-1], name)
        matches = [by_last[match] for match in difflib.get_close_matches(last, by_last, n=2, cutoff=0.6)]
    if matches:
        return f"did you mean {' or '.join(path + match for match in matches)}?"
    return "`python train.py --cfg job` prints them all"


def new_path(key: str) -> str | None:
    """Where a key of system A's old layout went; None for any other."""
    for old, new in OLD_PATHS:
        if key.startswith(old):
            return new + key[len(old) :]
    return None
