"""The schema of the configuration, and its check: a key's type is the annotation of the parameter that it becomes."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from hydra.utils import instantiate

from settings.keys import FROM_ENVIRONMENT, walk
from settings.signatures import (
    alternatives,
    fit,
    interface_of,
    nearest,
    parameters,
    require_interface,
    require_schedule,
)
from settings.types import (
    EnvWrapper,
    Execution,
    Factory,
    Interface,
    NonNegativeInt,
    Plain,
    PositiveFloat,
    PositiveInt,
    RowSteps,
    Schedule,
    Seconds,
    Storage,
    UnitInterval,
)
from utils import UserError, import_failure, one_line

# Parameters that the code fills in, never YAML.
SUPPLIED = {"device", "log_dir", "make_env", "video_path", *FROM_ENVIRONMENT} | {
    "action_shape",  # of a replay buffer
    *("shape", "width", "num_members"),  # of networks and layers, from their actor or critic
}
FROM_AGENT = {"init_temperature"}  # a temperature's parameter, from the agent's key of that name
BY_RETURN = "return"  # value of `best_by`
ONLY_IN = "only_in"  # key of a wrapper's node: the environments that it is limited to
Place = Literal["training", "evaluation"]
# Keys of an agent's YAML that set the defaults of the run's keys of the same names.
ASKED_BY_AGENT = (
    *("updates_per_step", "from_pixels", "action_repeat", "num_seed_steps", "replay_buffer_capacity"),
    "action_repeats",  # action_repeat by task
)
NOT_PARAMETERS = {"_target_", "_partial_"}
PLAIN = (bool, int, float, str, list, tuple, NoneType)  # hints that admit no node
OLD_PATHS = (  # keys of pytorch_sac's layout, and their new names
    ("double_q_critic.params.", "agent.critic."),
    ("diag_gaussian_actor.params.", "agent.actor."),
    ("agent.params.", "agent."),
    ("agent.critic.params.", "agent.critic."),
    ("agent.actor.params.", "agent.actor."),
    ("agent.class", "agent._target_"),
)
AgentNode = Annotated[
    dict[str, Any], Interface("an agent", ("obs_dim", "action_dim", "action_range", "device"), ("act", "update"))
]


@dataclass(frozen=True)
class Settings:
    """The keys of `config/train.yaml`, explained there; four of them are nodes."""

    env: str
    env_kwargs: Plain
    env_wrappers: list[Any]  # see _check_wrappers
    experiment: str
    num_train_steps: PositiveInt
    replay_buffer_capacity: PositiveInt
    n_step: RowSteps
    sample_with_replacement: bool
    reward_scale: float | Schedule
    preload: str | list[str] | None
    preload_share: UnitInterval
    offline_updates: NonNegativeInt
    num_seed_steps: NonNegativeInt
    seed_policy: str
    min_buffer_size: NonNegativeInt
    updates_while_seeding: bool
    update_every: PositiveInt
    updates_per_step: Annotated[float, Gt(0), Le(1000)]
    action_repeat: PositiveInt
    from_pixels: bool
    image_size: Annotated[int, Ge(8), Le(1024)]
    frame_stack: Annotated[int, Ge(1), Le(16)] | Literal["auto"]
    camera_id: Annotated[int, Ge(0)] | Literal["auto"]
    image_pad: NonNegativeInt
    num_envs: Annotated[int, Gt(0), Le(65_536)]
    async_envs: bool
    env_timeout_s: Seconds
    eval_frequency: PositiveInt
    num_eval_episodes: Annotated[int, Gt(0), Le(100_000)]
    eval_sample: bool
    eval_in_background: bool | Literal["auto"]
    checkpoint_frequency: NonNegativeInt
    keep_checkpoints: PositiveInt
    save_replay_buffer: bool
    grace_s: Seconds
    device: str
    precision: Literal["auto", "fp32", "tf32", "bf16"]
    execution: Execution
    replay_storage: Storage
    num_threads: Annotated[int, Gt(0), Le(1024)] | None
    log_frequency: NonNegativeInt
    log_every_steps: NonNegativeInt
    log_save_tb: bool
    log_save_wandb: bool
    save_video: bool
    save_figure: bool
    seed: Annotated[int, Ge(0), Lt(2**32)]
    agent: AgentNode
    replay_buffer: dict[str, Any]  # run/data/buffers.py checks the rest
    logger: Annotated[dict[str, Any], Interface("a logger", ("log_dir",), ("log", "dump"))]
    evaluator: Annotated[dict[str, Any], Interface("an evaluator", ("make_env", "video_path"), ("evaluate",))]
    # Added after the checkpoint format, so a saved configuration may lack them.
    info_keys: dict[str, Literal["last", "sum"]] = field(default_factory=lambda: {"is_success": "last"})
    best_by: str = BY_RETURN
    physics: Literal["auto", "suite", "batched", "warp"] = "auto"
    stagger_steps: NonNegativeInt = 0
    obs_groups: dict[Literal["actor", "critic"], list[str]] | None = None
    action_bounds: PositiveFloat | list[PositiveFloat] | None = None


class UnknownKeyError(UserError):
    """Raised for a key that no parameter takes; `key` is its dotted name."""

    def __init__(self, message: str, key: str):
        super().__init__(message)
        self.key = key


def check(config: dict[str, Any]) -> Settings:
    """Checks every value of a resolved configuration against the signature that it will be passed to.

    Returns:
        The settings, with integral floats such as 1e6 converted to ints.

    Raises:
        UserError: for an unknown key, a missing one, or a value of the wrong type or range.
    """
    agent = {key: value for key, value in (config.get("agent") or {}).items() if key not in ASKED_BY_AGENT}
    name = agent.pop("name", None)
    checked = _check_call(Settings, {**config, **({"agent": agent} if "agent" in config else {})}, "")
    for key in ("agent", "replay_buffer", "logger", "evaluator"):
        _require_partial(checked[key], key)
    checked["env_wrappers"] = _check_wrappers(checked["env_wrappers"])
    if not isinstance(name, str) or not name:
        raise UserError(f"agent.name={name}: a word for the run folder's name goes here")
    checked["agent"] = {"name": name, **checked["agent"]}
    settings = Settings(**checked)
    if settings.best_by not in (BY_RETURN, *settings.info_keys):
        listed = ", ".join(settings.info_keys)
        raise UserError(f"best_by={settings.best_by}: {BY_RETURN}, or a key of info_keys ({listed or 'there is none'})")
    return settings


def check_agent(node: dict[str, Any]) -> dict[str, Any]:
    """Checks only the node of an agent, without its name, as `check` does."""
    checked = _check_value(AgentNode, node, "agent")
    _require_partial(checked, "agent")
    return checked


def _check_call(target: Any, values: dict[str, Any], path: str, interface: Interface | None = None) -> dict[str, Any]:
    """Checks the values of one node against the parameters of its target, and returns them converted.

    Args:
        path: the node's dotted key and a dot; "" for the top level.
    """
    target_setting = f"{path}_target_={values.get('_target_')}"
    try:
        known = parameters(target)
    except (ValueError, TypeError, NameError) as error:  # a builtin, or annotations that cannot be evaluated
        raise UserError(f"{target_setting}: cannot be called from here ({one_line(error)})") from None
    supplied = SUPPLIED
    if interface is not None:
        require_interface(interface, target, known, target_setting)
        supplied = SUPPLIED | set(interface.given) - FROM_AGENT

    checked = {}
    for key, value in values.items():
        if key in NOT_PARAMETERS:
            checked[key] = value
        elif key in supplied and path:
            raise UserError(f"{path}{key}={value}: it comes from the environment and the run, not from the user")
        elif key not in known:
            hint = _unknown_key_hint(key, values, path, set(known), supplied)
            raise UnknownKeyError(f"{path}{key}={value}: unknown key; {hint}", f"{path}{key}")
        else:
            checked[key] = _check_value(known[key].hint, value, path + key)

    for key, parameter in known.items():
        if key in values or parameter.default is not inspect.Parameter.empty:
            continue
        if not path or key not in supplied | FROM_AGENT:
            raise UserError(f"{path}{key} is missing; it has no default")
        if interface is not None and key not in interface.given:
            raise UserError(f"{target_setting}: {interface.what} goes here, and this needs {key}")
    return checked


def _unknown_key_hint(key: str, values: dict[str, Any], path: str, known: set[str], supplied: set[str]) -> str:
    if not path:
        return nearest(key, set(dict(walk(values))) - {key})
    hint = nearest(key, known, path)
    if "did you mean" in hint:
        return hint
    target, node = values["_target_"], path[:-1]
    hint = f"{target} has {', '.join(sorted(known - supplied)) or 'no keys'}"
    if node.rpartition(".")[2].isdigit():  # an item of a list is always given as a whole
        return hint
    return f"{hint}; {node}={{_target_: {target}, …}}, given as a whole, replaces a node of another class"


def _check_value(hint: Any, value: Any, path: str) -> Any:
    if isinstance(value, dict):
        if "_target_" in value:
            return _check_node(hint, value, path)
        if get_origin(hint) is dict and get_args(hint)[1] is not Any:
            item = get_args(hint)[1]
            takes_null = Factory in alternatives(item)
            return {
                key: None if takes_null and not child else _check_value(item, child, f"{path}.{key}")
                for key, child in value.items()
            }
    members, shown = list(alternatives(hint)), "null" if value is None else value
    if Factory in members and (value is not None or type(None) not in members):
        raise UserError(
            f"{path}={shown}: a group of keys goes here; set one of them, {path}.<key>=<value>, choose another group "
            f"where there are several, {path.replace('.', '/')}=<name>, or write one, "
            f"{path}={{_target_: <class>, _partial_: true}}"
        )
    try:
        return fit(hint, value)
    except ValueError as error:
        raise UserError(f"{path}={shown}: {error}") from None


def _check_wrappers(nodes: list[Any]) -> list[dict[str, Any]]:
    """Checks the nodes of `env_wrappers`, which the code completes with an environment, and their `only_in`."""
    checked = []
    for index, node in enumerate(nodes):
        path = f"env_wrappers.{index}"
        if not isinstance(node, dict) or "_target_" not in node:
            raise UserError(f"{path}={node}: a node goes here, {{_target_: my_package.MyWrapper, …}}")
        place = {key: _check_value(Place, value, f"{path}.{key}") for key, value in node.items() if key == ONLY_IN}
        arguments = {key: value for key, value in node.items() if key != ONLY_IN}
        checked.append(_check_value(EnvWrapper, {"_partial_": True, **arguments}, path) | place)
    return checked


def _check_node(hint: Any, node: dict[str, Any], path: str) -> dict[str, Any]:
    """Checks a node `{_target_: …}`; for a schedule, also the values that it returns."""
    accepts = list(alternatives(hint))
    if not any(map(_accepts_node, accepts)):
        raise UserError(f"{path}={node}: a plain value goes here, and no node")
    if Factory in accepts:
        _require_partial(node, path)
    checked = _check_call(_locate(node["_target_"], path), node, f"{path}.", interface_of(hint))
    if Schedule in accepts:
        target = str(node["_target_"])
        setting = f"{path}._target_={target}"
        if target.startswith("agent.") and not target.startswith("agent.schedule."):
            raise UserError(f"{setting}: no schedule; those here are in agent/schedule.py")
        require_schedule(lambda: instantiate(checked, _convert_="all"), checked, hint, path, setting)
    return checked


def _accepts_node(kind: Any) -> bool:
    """Returns whether one alternative of a hint can be an object that a node builds."""
    if get_origin(kind) is dict:
        return get_args(kind)[1] is Any
    return get_origin(kind) is Callable or kind is Any or (inspect.isclass(kind) and kind not in PLAIN)


def _require_partial(node: dict[str, Any], path: str) -> None:
    if "_target_" not in node:
        raise UserError(f"{path}._target_ is missing; it names the class")
    if node.get("_partial_") is not True:
        raise UserError(f"{path}: the code completes this node with shapes or folders; it has to say _partial_: true")


def _locate(dotted: str, path: str) -> Any:
    """Imports the class or function that a `_target_` names."""
    module, _, name = str(dotted).rpartition(".")
    try:
        target = getattr(import_module(module), name)
        if not callable(target):
            raise ValueError("a class or a function goes here")
        return target
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{path}._target_={dotted}: {import_failure(module, error)}") from None
    except Exception as error:  # any exception of a user's module
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"{path}._target_={dotted}: cannot be imported ({reason})") from error


def new_path(key: str) -> str | None:
    """Returns the new name of a key from pytorch_sac's layout; None for any other key."""
    return next((new + key.removeprefix(old) for old, new in OLD_PATHS if key.startswith(old)), None)
