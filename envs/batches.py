"""A simulator's data: arrays or tensors."""

from typing import Any

import gymnasium as gym
import numpy as np

_ARRAY = "numpy.ndarray"  # key of an array in a packed state


def widths(space: gym.Space[Any]) -> list[int]:
    """Returns the widths of a space's flattened parts."""
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        parts = space.values() if isinstance(space, gym.spaces.Dict) else space
        return [width for part in parts for width in widths(part)]
    if not isinstance(space, gym.spaces.Box) or len(space.shape) > 2:
        raise ValueError(f"its observations are {space}; a simulator's are a Box of numbers, or several in a Dict")
    return [int(np.prod(space.shape))]


def columns(space: gym.Space[Any], obs: Any) -> list[Any]:
    """Returns the parts of a batch of observations, each (num_envs, ...), in `gymnasium.spaces.flatten`'s order."""
    if isinstance(space, gym.spaces.Dict):
        return [column for key, part in space.items() for column in columns(part, obs[key])]
    if isinstance(space, gym.spaces.Tuple):
        return [column for part, value in zip(space, obs, strict=True) for column in columns(part, value)]
    return [obs if is_tensor(obs) else np.asarray(obs)]


def merged(values: Any, chosen: Any, which: np.ndarray) -> Any:
    """Returns rows of `chosen` where the mask is true, and of `values` elsewhere; both are (num_envs, width)."""
    if not is_tensor(values):
        return np.where(which[:, None], chosen, values)
    import torch

    mask = torch.from_numpy(which).to(values.device, non_blocking=True)
    return torch.where(mask[:, None], chosen, values)


def packed(state: Any) -> Any:
    """Replaces the arrays and NumPy numbers in a nested state, which a checkpoint cannot hold; `unpacked` undoes it."""
    import torch

    if isinstance(state, dict):
        return {key: packed(child) for key, child in state.items()}
    if isinstance(state, list | tuple):
        return [packed(child) for child in state]
    if isinstance(state, np.ndarray) and state.dtype.kind in "biuf":
        return {_ARRAY: torch.from_numpy(state.copy())}
    return state.item() if isinstance(state, np.generic) else state


def unpacked(state: Any) -> Any:
    """Returns a state as it was before `packed`; its tuples are lists, and its NumPy numbers are Python's."""
    if isinstance(state, dict):
        return state[_ARRAY].numpy() if _ARRAY in state else {key: unpacked(child) for key, child in state.items()}
    return [unpacked(child) for child in state] if isinstance(state, list) else state


def is_tensor(values: Any) -> bool:
    return hasattr(values, "cpu")  # a process of environments may not have imported torch


def host(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if is_tensor(values) else np.asarray(values)


def like(values: Any, tensor: Any) -> Any:
    import torch

    return torch.as_tensor(values, dtype=tensor.dtype, device=tensor.device)
