"""The replay buffer that a run's settings describe, and what makes its rows."""

import inspect
from typing import Any

import torch
from hydra.utils import get_object, instantiate

from agent.toolkit.priorities import require_support
from replay import device as device_buffer
from replay import frames
from replay.n_step import NStep
from replay_buffer import ReplayBuffer, nbytes
from replay_buffer import require_memory as require_memory_for_rows
from run.env_spec import EnvSpec
from settings.operating_system import available_bytes
from settings.schema import Settings
from utils import UserError

# What the training loop and a checkpoint ask of a replay buffer, and what updates in a CUDA graph ask besides.
BUFFER_METHODS = ("add", "sample", "num_added", "capacity", "state_dict", "load_state_dict", "__len__")
GRAPH_METHODS = ("stage", "staged", "generators")
STAGES = (ReplayBuffer.stage, frames.FrameBuffer.stage)  # which do not call sample


def build_n_step(cfg: Settings) -> NStep:
    """What turns steps into the replay buffer's rows.

    Raises:
        UserError: for several steps and a discount that is no number.
    """
    if cfg.n_step == 1:
        return NStep(1)
    discount = cfg.agent.get("discount")
    if not isinstance(discount, float | int):
        raise UserError(
            f"n_step={cfg.n_step}: rewards are discounted as they are stored, so agent.discount has to be a number, "
            "not a schedule; choose n_step=1"
        )
    return NStep(cfg.n_step, discount)


def has_our_buffer(cfg: Settings) -> bool:
    """Whether the replay buffer is the one that `replay_storage` has three classes of."""
    return get_object(cfg.replay_buffer["_target_"]) is ReplayBuffer


def draws_with_replacement(cfg: Settings) -> bool:
    """Whether a batch may hold a transition twice, as far as the replay buffer's settings say."""
    return bool(cfg.replay_buffer.get("with_replacement", True))


def choose_storage(cfg: Settings, spec: EnvSpec, device: torch.device) -> str:
    """What `replay_storage` means for this run; `auto` for a replay buffer of the user's own.

    Raises:
        UserError: for a storage that this device, or this buffer, does not have.
    """
    if has_our_buffer(cfg):
        capacity = cfg.replay_buffer["capacity"]
        sizes = *spec, capacity
        asked = frames.nbytes(*sizes, cfg.frame_stack) if spec.is_image else nbytes(*sizes)
        replaces = draws_with_replacement(cfg)
        return device_buffer.choose_storage(cfg.replay_storage, device, replaces, capacity, asked)
    if cfg.replay_storage != "auto":
        raise UserError(
            f"replay_storage={cfg.replay_storage}: it chooses where replay_buffer.ReplayBuffer has its rows, and "
            f"replay_buffer._target_={cfg.replay_buffer['_target_']}; choose replay_storage=auto"
        )
    return "auto"


def require_memory(cfg: Settings, spec: EnvSpec) -> None:
    """Raises UserError if a batch, or a full replay buffer of ours, would not fit into the memory that is free now."""
    batch_size = cfg.agent.get("batch_size", 0)
    batch_bytes, available = nbytes(*spec, batch_size), available_bytes()
    if batch_bytes > available:
        raise UserError(
            f"agent.batch_size={batch_size}: a batch needs {batch_bytes:,} bytes, and {available:,} are available"
        )
    if has_our_buffer(cfg):
        sizes = *spec, cfg.replay_buffer["capacity"]
        if spec.is_image:
            frames.require_memory(*sizes, cfg.frame_stack)
        else:
            require_memory_for_rows(*sizes)


def build_replay_buffer(
    cfg: Settings, spec: EnvSpec, device: torch.device, storage: str, execution: str, agent: Any
) -> Any:
    """The replay buffer that `cfg.replay_buffer` describes.

    Args:
        storage: what `choose_storage` chose.
        execution: of the updates; those in CUDA graphs ask more of a buffer.
        agent: which learns from it; a buffer that draws by priority asks more of it.

    Raises:
        UserError: for a class that cannot be called so, or lacks what the training loop needs, or draws by priority
            where that cannot work.
    """
    node = dict(cfg.replay_buffer)
    target = node["_target_"]
    obs_shape, action_shape = spec
    if storage != "auto":
        if not draws_with_replacement(cfg) and agent.batch_size > node["capacity"]:
            raise UserError(
                f"replay_buffer_capacity={node['capacity']}: at least agent.batch_size={agent.batch_size} is needed "
                "without replacement"
            )
        of_images = len(obs_shape) > 1
        kind = (frames if of_images else device_buffer).STORAGES[storage]
        node["_target_"] = f"{kind.__module__}.{kind.__qualname__}"
        node |= {"frame_stack": cfg.frame_stack} if of_images else {}
    given = {"obs_shape": obs_shape, "action_shape": action_shape, "device": device}
    make = instantiate(node, _convert_="all")
    try:
        inspect.signature(make).bind(**given)
    except TypeError as error:
        raise UserError(
            f"replay_buffer._target_={target}: it has to take obs_shape, action_shape and device ({error})"
        ) from None
    buffer = make(**given)
    needed = BUFFER_METHODS + (GRAPH_METHODS if execution.endswith("captured") else ())
    missing = [name for name in needed if not hasattr(buffer, name)]
    if missing:
        hint = "; or choose execution=eager" if set(missing) <= set(GRAPH_METHODS) else ""
        raise UserError(f"replay_buffer._target_={target}: it needs {', '.join(missing)}{hint}")
    if (
        execution.endswith("captured")
        and type(buffer).stage in STAGES
        and type(buffer).sample is not ReplayBuffer.sample
    ):
        raise UserError(
            f"replay_buffer._target_={target}: it overrides sample, and updates in a CUDA graph call stage and staged "
            "instead; override choose, or choose execution=eager"
        )
    require_support(agent, buffer)
    if cfg.preload_share and hasattr(buffer, "update_priorities"):
        raise UserError(
            f"preload_share={cfg.preload_share}: replay_buffer._target_={target} draws by priority, and preloaded rows "
            "are drawn uniformly; choose preload_share=0, which puts them into that buffer"
        )
    return buffer
