"""The configuration's types: a key's type is the annotation of the parameter that it becomes."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from hydra.utils import instantiate

from settings.interfaces import part_in, require_part
from settings.nested import walk
from settings.signatures import along, alternatives, fit, nearest, parameters
from settings.types import (
    EnvWrapper,
    Execution,
    Factory,
    NonNegativeInt,
    Part,
    Plain,
    PositiveFloat,
    PositiveInt,
    Schedule,
    Storage,
    UnitInterval,
)
from utils import UserError, one_line

# Parameters that code fills in, never YAML; the temperature's comes from the agent's key of that name.
SUPPLIED = {"obs_dim", "action_dim", "action_range", "device", "log_dir", "make_env", "video_path"} | {
    *("obs_shape", "action_shape"),  # of a replay buffer
    *("shape", "width", "num_members"),  # of networks and layers, from their actor or critic
}
FROM_AGENT = {"init_temperature"}
ONLY_IN = "only_in"  # of a wrapper's node: where alone it is put around the environments
Place = Literal["training", "evaluation"]
# What an agent asks of its run: each arrives in the run's key of that name, unless that is set.
ASKED_BY_AGENT = (
    *("updates_per_step", "from_pixels", "action_repeat", "num_seed_steps", "replay_buffer_capacity"),
    "action_repeats",  # by task, of which action_repeat is one
)
NOT_PARAMETERS = {"_target_", "_partial_"}
PLAIN = (bool, int, float, str, list, tuple, NoneType)  # of YAML, where no node goes
OLD_PATHS = (  # pytorch_sac's, and where they went
    ("double_q_critic.params.", "agent.critic."),
    ("diag_gaussian_actor.params.", "agent.actor."),
    ("agent.params.", "agent."),
    ("agent.class", "agent._target_"),
)


AgentNode = Annotated[
    dict[str, Any], Part("an agent", ("obs_dim", "action_dim", "action_range", "device"), ("act", "update"))
]


@dataclass(frozen=True)
class Settings:
    """The keys of `config/train.yaml`, explained there; the last four are nodes of their own."""

    env: str
    env_kwargs: Plain
    env_wrappers: list[Any]  # see _check_wrappers
    experiment: str
    num_train_steps: PositiveInt
    replay_buffer_capacity: PositiveInt
    n_step: PositiveInt
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
    frame_stack: Annotated[int, Ge(1), Le(16)]
    camera_id: Annotated[int, Ge(0)] | Literal["auto"]
    image_pad: NonNegativeInt
    num_envs: Annotated[int, Gt(0), Le(1024)]
    async_envs: bool
    env_timeout_s: PositiveFloat
    eval_frequency: PositiveInt
    num_eval_episodes: Annotated[int, Gt(0), Le(100_000)]
    eval_sample: bool
    eval_in_background: bool | Literal["auto"]
    checkpoint_frequency: NonNegativeInt
    keep_checkpoints: PositiveInt
    save_replay_buffer: bool
    grace_s: PositiveFloat
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
    replay_buffer: dict[str, Any]  # run.build asks more of one than its class can say
    logger: Annotated[dict[str, Any], Part("a logger", ("log_dir",), ("log", "dump"))]
    evaluator: Annotated[dict[str, Any], Part("an evaluator", ("make_env", "video_path"), ("evaluate",))]


class UnknownKeyError(UserError):
    """A key that nothing takes.

    Args:
        message: one line.
        key: dotted.
    """

    def __init__(self, message: str, key: str):
        super().__init__(message)
        self.key = key


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
    for asked in ASKED_BY_AGENT:
        agent.pop(asked, None)
    checked = _check_call(Settings, {**config, "agent": agent}, "")
    for key in ("agent", "replay_buffer", "logger", "evaluator"):
        _require_partial(checked[key], key)
    checked["env_wrappers"] = _check_wrappers(checked["env_wrappers"])
    if not isinstance(name, str) or not name:
        raise UserError(f"agent.name={name}: a word for the run folder's name goes here")
    checked["agent"] = {"name": name, **checked["agent"]}
    return Settings(**checked)


def check_agent(node: dict[str, Any]) -> dict[str, Any]:
    """As `check`, of an agent alone; without its name.

    Raises:
        UserError: as `check`.
    """
    checked = _check_value(AgentNode, node, "agent")
    _require_partial(checked, "agent")
    return checked


def _check_call(target: Any, values: dict[str, Any], path: str, part: Part | None = None) -> dict[str, Any]:
    """Checks one node's values against the target's parameters and returns them converted.

    Args:
        part: what the target has to be good for.
    """
    try:
        known = parameters(target)
    except (ValueError, TypeError, NameError) as error:  # built into Python, or with annotations that lead nowhere
        raise UserError(
            f"{path}_target_={values['_target_']}: cannot be called from here ({one_line(error)})"
        ) from None
    supplied = SUPPLIED
    if part is not None:
        require_part(part, target, known, f"{path}_target_={values['_target_']}")
        supplied = SUPPLIED | set(part.given) - FROM_AGENT
    checked = {}
    for key, value in values.items():
        if key in NOT_PARAMETERS:
            checked[key] = value
        elif key in supplied and path:
            raise UserError(f"{path}{key}={value}: it comes from the environment and the run, not from the user")
        elif key not in known:
            near = known if path else dict(walk(values))
            hint = nearest(key, set(near) - {key}, path)
            if path and "did you mean" not in hint:
                hint = f"{values['_target_']} has {', '.join(sorted(set(known) - supplied)) or 'no keys'}"
                if not path.rstrip(".").rpartition(".")[2].isdigit():  # an item of a list is given as a whole anyway
                    whole = f"{path[:-1]}={{_target_: {values['_target_']}, …}}"
                    hint += f"; {whole}, given as a whole, replaces a node of another class"
            raise UnknownKeyError(f"{path}{key}={value}: unknown key; {hint}", f"{path}{key}")
        else:
            checked[key] = _check_value(known[key].hint, value, path + key)
    for key, parameter in known.items():
        from_code = key in supplied or key in FROM_AGENT
        if key in values or not parameter.required or (from_code and (part is None or key in part.given)):
            continue
        if from_code and part is not None:
            raise UserError(f"{path}_target_={values['_target_']}: {part.what} goes here, and this needs {key}")
        raise UserError(f"{path}{key} is missing; it has no default")
    return checked


def _check_value(hint: Any, value: Any, path: str) -> Any:
    if isinstance(value, dict):
        if "_target_" in value:
            return _check_node(hint, value, path)
        if get_origin(hint) is dict and Factory in alternatives(get_args(hint)[1]):  # nodes by name, some switched off
            one = get_args(hint)[1]
            return {key: _check_value(one, child, f"{path}.{key}") if child else None for key, child in value.items()}
    if Factory in alternatives(hint) and value is not None:
        raise UserError(
            f"{path}={value}: a group of keys goes here; set one of them, {path}.<key>=<value>, "
            f"or choose another group where there are several, {path.replace('.', '/')}=<name>"
        )
    try:
        return fit(hint, value)
    except ValueError as error:
        raise UserError(f"{path}={value}: {error}") from None


def _check_wrappers(nodes: list[Any]) -> list[dict[str, Any]]:
    """Nodes that the code completes with an environment; each may say where alone it belongs."""
    checked = []
    for index, node in enumerate(nodes):
        path = f"env_wrappers.{index}"
        if not isinstance(node, dict) or "_target_" not in node:
            raise UserError(f"{path}={node}: a node goes here, {{_target_: my_package.MyWrapper, …}}")
        place = {ONLY_IN: node[ONLY_IN]} if ONLY_IN in node else {}
        for value in place.values():
            _check_value(Place, value, f"{path}.{ONLY_IN}")
        rest = {key: value for key, value in node.items() if key != ONLY_IN}
        checked.append(_check_value(EnvWrapper, {"_partial_": True, **rest}, path) | place)
    return checked


def _check_node(hint: Any, node: dict[str, Any], path: str) -> dict[str, Any]:
    """Checks a node `{_target_: …}`, and of a schedule the values that it gives."""
    accepts = list(alternatives(hint))
    if not any(_takes_node(kind) for kind in accepts):
        raise UserError(f"{path}={node}: a plain value goes here, and no node")
    if Factory in accepts:
        _require_partial(node, path)
    checked = _check_call(_locate(node["_target_"], path), node, f"{path}.", part_in(hint))
    if Schedule in accepts:
        _check_schedule(hint, checked, path)
    return checked


def _takes_node(kind: Any) -> bool:
    """Whether one alternative of a hint may be something that is built; what has no hint may be anything."""
    if get_origin(kind) is dict:
        return get_args(kind)[1] is Any
    return get_origin(kind) is Callable or kind is Any or (inspect.isclass(kind) and kind not in PLAIN)


def _check_schedule(hint: Any, node: dict[str, Any], path: str) -> None:
    """Has every value that a schedule gives at the steps that `along` looks at fit where it goes."""
    target = str(node["_target_"])
    if target.startswith("agent.") and not target.startswith("agent.schedule."):
        raise UserError(f"{path}._target_={target}: no schedule; those here are in agent/schedule.py")
    try:
        values = along(instantiate(node, _convert_="all"), node)
    except Exception as error:  # whatever a class of the user's raises
        said = f"{type(error).__name__}: {one_line(error.__cause__ or error)}"
        raise UserError(f"{path}._target_={node['_target_']}: no schedule can be made of it ({said})") from None
    for step, value in values.items():
        _check_value(hint, value, f"{path}, at step {step}, ")


def _require_partial(node: dict[str, Any], path: str) -> None:
    if not node.get("_partial_"):
        raise UserError(f"{path}: the code completes this node with shapes or folders; it has to say _partial_: true")


def _locate(dotted: str, path: str) -> Any:
    module, _, name = str(dotted).rpartition(".")
    try:
        found = getattr(import_module(module), name)
        if not callable(found):
            raise ValueError("a class or a function goes here")
        return found
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{path}._target_={dotted}: cannot be imported ({one_line(error)})") from None
    except Exception as error:  # whatever a module of the user's raises
        said = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"{path}._target_={dotted}: cannot be imported ({said})") from error


def new_path(key: str) -> str | None:
    """Where a key of pytorch_sac's old layout went; None for any other."""
    for old, new in OLD_PATHS:
        if key.startswith(old):
            return new + key[len(old) :]
    return None
