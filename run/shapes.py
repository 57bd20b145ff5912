"""What an agent's constructor is told of its environment."""

from typing import Any

import gymnasium as gym
import numpy as np

Shapes = dict[str, Any]  # obs_dim, of images obs_shape too, action_dim, action_range


def shapes_of(observation_space: gym.Space, action_space: gym.Space) -> Shapes:
    """What an agent's constructor is told of an environment: of images, their shape too."""
    shape, (action_dim,) = observation_space.shape or (), action_space.shape or ()
    images = {} if len(shape) == 1 else {"obs_shape": list(shape)}
    return {"obs_dim": int(np.prod(shape)), **images, "action_dim": action_dim, "action_range": [-1.0, 1.0]}


def buffer_shapes(shapes: Shapes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of an observation and an action."""
    return tuple(shapes.get("obs_shape", (shapes["obs_dim"],))), (shapes["action_dim"],)


def zeros(shapes: Shapes) -> np.ndarray:
    """An observation of nothing."""
    return np.zeros(buffer_shapes(shapes)[0], np.uint8 if "obs_shape" in shapes else np.float32)
