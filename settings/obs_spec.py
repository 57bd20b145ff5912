"""What an observation is made of: one description for environments, replay buffers and networks."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ObsSpec:
    """Describes the parts of an observation, and where they are in its array.

    A vector alone is float32 (vector_dim,), an image alone uint8 (C, H, W). Both together are bytes: the image, padded
    to whole floats, and then the vector's floats. The frames of a stack are channels; of a vector, the values of one
    element in all frames are adjacent. The oldest is first.
    """

    image: tuple[int, int, int] | None = None  # (C, H, W)
    vector_dim: int = 0
    frame_stack: int = 1  # newest frames in an observation
    # (n, m): the actor sees only the first n elements of the vector, critics those from index m on; None: both see all.
    groups: tuple[int, int] | None = None

    @classmethod
    def of_shape(cls, shape: tuple[int, ...]) -> "ObsSpec":
        """Returns the spec of an image or a vector of this shape."""
        is_image = len(shape) == 3
        return cls(shape if is_image else None, 0 if is_image else shape[0])  # type: ignore[arg-type]

    @property
    def is_mixed(self) -> bool:  # an image beside a vector
        return self.image is not None and self.vector_dim > 0

    @property
    def has_frames(self) -> bool:  # whether replay buffers store frames instead of observations
        return self.image is not None or self.frame_stack > 1

    @property
    def image_bytes(self) -> int:
        return math.prod(self.image) if self.image else 0

    @property
    def vector_at(self) -> int:  # where the vector begins, in floats
        return -(-self.image_bytes // 4)

    @property
    def width(self) -> int:  # the size of an observation, in floats
        return self.vector_at + self.vector_dim

    @property
    def shape(self) -> tuple[int, ...]:
        return (4 * self.width,) if self.is_mixed else self.image or (self.vector_dim,)

    @property
    def dtype(self) -> type:
        return np.uint8 if self.image else np.float32

    def seen(self, by_actor: bool) -> tuple[int, int]:
        """Returns the range [start, stop) of the vector's elements that the actor, or critics, see."""
        actor_stop, critic_start = self.groups or (self.vector_dim, 0)
        return (0, actor_stop) if by_actor else (critic_start, self.vector_dim)

    def of_actor(self, obs: Any) -> Any:
        """Cuts observations (B, *shape) to what the actor sees."""
        if self.groups is None:
            return obs
        return obs[:, : 4 * (self.vector_at + self.groups[0]) if self.image else self.groups[0]]

    def pack(self, image: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Packs an image (C, H, W) and a vector (vector_dim,), float32, into an observation (4 * width,), uint8."""
        packed = np.zeros(4 * self.width, np.uint8)
        packed[: self.image_bytes] = image.reshape(-1)
        packed[4 * self.vector_at :] = vector.view(np.uint8)
        return packed

    def unpack(self, obs: Any, float32: Any) -> tuple[Any, Any]:
        """Returns views of images (B, C, H, W) and vectors (B, …) in observations (B, 4 * width), arrays or tensors."""
        return obs[:, : self.image_bytes].reshape(-1, *(self.image or ())), obs[:, 4 * self.vector_at :].view(float32)
