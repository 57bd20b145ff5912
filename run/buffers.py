"""Builds the replay buffer, and what turns steps into its rows, from a run's settings."""

from typing import Any

import torch
from hydra.utils import get_object, instantiate

from replay import device as device_buffer
from replay import frames
from replay.n_step import NStep
from replay_buffer import ReplayBuffer
from run.agents import EnvSpec
from settings.schema import Settings
from utils import UserError


def make_n_step(cfg: Settings) -> NStep:
    """Makes the NStep that turns steps into rows; it discounts rewards as they are stored, so by a constant."""
    discount = 1.0 if cfg.n_step == 1 else cfg.agent.get("discount")
    if not isinstance(discount, float | int):
        raise UserError(f"n_step={cfg.n_step}: agent.discount must be a number, not a schedule; or choose n_step=1")
    return NStep(cfg.n_step, discount)


def draws_with_replacement(cfg: Settings) -> bool:
    """Returns whether a batch may hold a transition twice."""
    return bool(cfg.replay_buffer.get("with_replacement", True))


def choose_storage(cfg: Settings, spec: EnvSpec, device: torch.device) -> str:
    """Resolves `replay_storage=auto`; a user's own replay buffer has "auto", as it decides itself."""
    if get_object(cfg.replay_buffer["_target_"]) is not ReplayBuffer:
        return "auto"
    is_uniform = draws_with_replacement(cfg) and cfg.replay_buffer.get("sampling") is None
    num_bytes = frames.nbytes(spec.obs, spec.action_shape, cfg.replay_buffer["capacity"])
    return device_buffer.choose_storage(cfg.replay_storage, device, is_uniform, num_bytes)


def make_replay_buffer(cfg: Settings, spec: EnvSpec, device: torch.device, storage: str) -> Any:
    """Makes the replay buffer that `cfg.replay_buffer` describes.

    Args:
        device: device of the batches.
        storage: result of `choose_storage`.
    """
    node = dict(cfg.replay_buffer)
    arguments: dict[str, Any] = {"obs_shape": spec.obs_shape, "action_shape": spec.action_shape, "device": device}
    if storage != "auto":
        kind = (frames if spec.obs.has_frames else device_buffer).STORAGES[storage]
        node["_target_"] = f"{kind.__module__}.{kind.__qualname__}"
        if spec.obs.has_frames:
            frames_apart = cfg.num_envs * (spec.obs.frame_stack + cfg.n_step + 2)  # in two rows of one environment
            arguments |= {"obs_spec": spec.obs, "searched": max(frames.SEARCHED, frames_apart)}
    buffer = instantiate(node, _convert_="all")(**arguments)
    if storage == "auto":
        buffer.load_state_dict(buffer.state_dict())  # a user's class that cannot do this could not resume
    return buffer
