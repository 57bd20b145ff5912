"""Exploration: noise that is held for several steps, so that a policy tries one thing for longer than an instant."""

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import torch

from settings.types import Factory, Part, PositiveFloat, PositiveInt
from settings.validated import Validated

ExplorationFactory = Annotated[Factory, Part("exploration noise", ("device",), ("__call__", "release"))]


class HeldNoise(Validated):
    """Each environment's policy noise stays the same for n steps, n from a zeta law that is cut off (arXiv 2604.04539).

    P(n) is proportional to n^-exponent for n from 1 to max_steps. The mean and the deviation of the action still follow
    the observation in every step; what is held is the standard normal that is put into them.

    Args:
        device: where the policy acts.
        exponent: of the law; the larger, the shorter.
        max_steps: the most steps that noise is held for.
    """

    def __init__(self, device: torch.device, exponent: PositiveFloat = 2.0, max_steps: PositiveInt = 16):
        self._device = device
        weights = np.arange(1.0, max_steps + 1) ** -exponent
        self._up_to = np.cumsum(weights)[:-1] / weights.sum()  # P(n <= 1), P(n <= 2), …; the last is 1
        # Its own, and not seeded as the policy's is: the times would be made of the same numbers as the noise.
        seed = int(np.random.SeedSequence([torch.initial_seed(), 1]).generate_state(1)[0])
        self._generator = torch.Generator().manual_seed(seed)
        self._steps_left = np.zeros(0, int)  # (num_envs,)
        self._noise = torch.zeros(0, device=device)  # (num_envs, noise_dim)

    def __call__(self, draw: Callable[[int], torch.Tensor], num_envs: int) -> torch.Tensor:
        """The noise of this step, (num_envs, noise_dim); of another number of environments than before, all anew.

        Args:
            draw: standard normal for so many rows, (rows, noise_dim).
            num_envs: environments that act, always in the same order.
        """
        if len(self._steps_left) != num_envs:
            self._steps_left = np.zeros(num_envs, int)
        over = np.flatnonzero(self._steps_left == 0)
        if len(over):
            fresh = draw(len(over))
            if len(over) == num_envs:
                self._noise = fresh
            else:
                for index, row in zip(over.tolist(), fresh, strict=True):
                    self._noise[index] = row
            uniform = torch.rand(len(over), dtype=torch.float64, generator=self._generator).numpy()
            self._steps_left[over] = 1 + np.searchsorted(self._up_to, uniform, side="right")
        self._steps_left -= 1
        return self._noise

    def release(self, ended: np.ndarray) -> None:
        """Holds nothing over from one episode to the next; `ended` is a mask, (num_envs,)."""
        if len(self._steps_left) == len(ended):
            self._steps_left[ended] = 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "generator": self._generator.get_state(),
            "steps_left": self._steps_left.tolist(),
            "noise": self._noise.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["generator"].cpu())
        self._steps_left = np.array(state["steps_left"], int)
        self._noise = state["noise"].to(self._device, copy=True)
