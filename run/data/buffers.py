"""Builds the replay buffer and what fills its rows. Both follow the run's settings."""

import inspect
from typing import Any

import torch
from hydra.utils import get_object, instantiate

from agent.toolkit.priorities import require_support
from replay import device as device_buffer
from replay import frames
from replay.n_step import NStep
from replay_buffer import ReplayBuffer, nbytes
from run.env_spec import EnvSpec
from settings.operating_system import available_bytes
from settings.schema import Settings
from utils import UserError

# Methods that the training loop and checkpoints call, and those that updates in a CUDA graph call in addition.
BUFFER_METHODS = ("add", "sample", "num_added", "capacity", "state_dict", "load_state_dict", "__len__")
GRAPH_METHODS = ("stage", "staged", "generators")


def build_n_step(cfg: Settings) -> NStep:
    """Builds the NStep that turns steps into the replay buffer's rows; n-step rows need a constant discount."""
    if cfg.n_step == 1:
        return NStep(1)
    discount = cfg.agent.get("discount")
    if not isinstance(discount, float | int):
        raise UserError(
            f"n_step={cfg.n_step}: rewards are discounted as they are stored, so agent.discount has to be a number, "
            "not a schedule; choose n_step=1"
        )
    return NStep(cfg.n_step, discount)


def draws_with_replacement(cfg: Settings) -> bool:
    """Returns whether a batch may hold a transition twice."""
    return bool(cfg.replay_buffer.get("with_replacement", True))


def choose_storage(cfg: Settings, spec: EnvSpec, device: torch.device) -> str:
    """Resolves `replay_storage=auto`; it stays `auto` with a user's own replay buffer, which decides itself."""
    if get_object(cfg.replay_buffer["_target_"]) is ReplayBuffer:
        capacity = cfg.replay_buffer["capacity"]
        num_bytes = (
            frames.nbytes(spec.obs, spec.action_shape, capacity)
            if spec.obs.has_frames
            else nbytes(spec.obs_shape, spec.action_shape, capacity)
        )
        with_replacement, uniform = draws_with_replacement(cfg), cfg.replay_buffer.get("sampling") is None
        return device_buffer.choose_storage(cfg.replay_storage, device, with_replacement, capacity, num_bytes, uniform)
    if cfg.replay_storage != "auto":
        raise UserError(
            f"replay_storage={cfg.replay_storage}: it chooses where replay_buffer.ReplayBuffer has its rows, and "
            f"replay_buffer._target_={cfg.replay_buffer['_target_']}; choose replay_storage=auto"
        )
    return "auto"


def require_memory_for_batch(cfg: Settings, spec: EnvSpec) -> None:
    """Raises UserError if a batch would not fit into the memory that is free now."""
    batch_size = cfg.agent.get("batch_size", 0)
    batch_bytes, available = nbytes((spec.obs.width,), spec.action_shape, batch_size), available_bytes()
    if batch_bytes > available:
        raise UserError(
            f"agent.batch_size={batch_size}: a batch needs {batch_bytes:,} bytes, and {available:,} are available"
        )


def build_replay_buffer(
    cfg: Settings, spec: EnvSpec, device: torch.device, storage: str, execution: str, agent: Any
) -> Any:
    """Builds the replay buffer that `cfg.replay_buffer` describes.

    Args:
        device: device of the batches.
        storage: result of `choose_storage`.
        execution: how updates run; in CUDA graphs, they call more of a buffer's methods.

    Raises:
        UserError: if the class takes other arguments, lacks a method, or is incompatible with agent or settings.
    """
    node = dict(cfg.replay_buffer)
    target = node["_target_"]
    arguments: dict[str, Any] = {"obs_shape": spec.obs_shape, "action_shape": spec.action_shape, "device": device}
    if storage == "auto" and spec.obs.is_mixed:
        raise UserError(f"replay_buffer._target_={target}: only replay_buffer.ReplayBuffer stores images with vectors")
    if storage != "auto":
        if not draws_with_replacement(cfg) and agent.batch_size > node["capacity"]:
            raise UserError(
                f"replay_buffer_capacity={node['capacity']}: at least agent.batch_size={agent.batch_size} is needed "
                "without replacement"
            )
        kind = (frames if spec.obs.has_frames else device_buffer).STORAGES[storage]
        node["_target_"] = f"{kind.__module__}.{kind.__qualname__}"
        if spec.obs.has_frames:
            frames_apart = cfg.num_envs * (spec.obs.frame_stack + cfg.n_step + 2)  # in two rows of one environment
            arguments |= {"obs_spec": spec.obs, "searched": max(frames.SEARCHED, frames_apart)}
    make = instantiate(node, _convert_="all")
    try:
        inspect.signature(make).bind(**arguments)
    except TypeError as error:
        raise UserError(
            f"replay_buffer._target_={target}: it has to take obs_shape, action_shape and device ({error})"
        ) from None
    buffer = make(**arguments)
    is_captured = execution.endswith("captured")
    needed = BUFFER_METHODS + GRAPH_METHODS if is_captured else BUFFER_METHODS
    missing = [name for name in needed if not hasattr(buffer, name)]
    if missing:
        hint = "; or choose execution=eager" if set(missing) <= set(GRAPH_METHODS) else ""
        raise UserError(f"replay_buffer._target_={target}: it needs {', '.join(missing)}{hint}")
    if is_captured and type(buffer).stage is ReplayBuffer.stage and type(buffer).sample is not ReplayBuffer.sample:
        raise UserError(
            f"replay_buffer._target_={target}: it overrides sample, and updates in a CUDA graph call stage and staged "
            "instead; override choose, or choose execution=eager"
        )
    require_support(agent, buffer)
    if storage == "auto":
        _require_own_state(buffer, f"replay_buffer._target_={target}")
    if cfg.preload_share and hasattr(buffer, "update_priorities"):
        rule = (cfg.replay_buffer.get("sampling") or cfg.replay_buffer)["_target_"]
        raise UserError(
            f"preload_share={cfg.preload_share}: {rule} draws by priority, and preloaded rows are drawn uniformly; "
            "choose preload_share=0, which puts them into the replay buffer, or replay_buffer=uniform"
        )
    return buffer


def _require_own_state(buffer: Any, key: str) -> None:
    """Raises UserError if a user's buffer cannot load its own state: on resuming, it would be too late."""
    is_subclass = isinstance(buffer, ReplayBuffer)
    state = buffer.state_dict()
    if is_subclass and not isinstance(state, dict):
        raise UserError(f"{key}: its state_dict returns a {type(state).__name__}; return a dictionary")
    if is_subclass and (missing := ReplayBuffer.state_dict(buffer).keys() - state.keys()):
        raise UserError(f"{key}: its state_dict lacks {', '.join(sorted(missing))}; add yours to super().state_dict()")
    if is_subclass:
        buffer.num_added = -1  # which ReplayBuffer.load_state_dict replaces
    try:
        buffer.load_state_dict(state)
    except Exception as error:  # a user's class can raise anything
        raise UserError(f"{key}: it cannot load its own state_dict ({type(error).__name__}: {error})") from error
    if is_subclass and buffer.num_added < 0:
        raise UserError(f"{key}: its load_state_dict has to call super().load_state_dict(state)")
