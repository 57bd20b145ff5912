"""Exploration noise that is held for several decisions, so that a policy explores in longer moves."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from settings.types import PositiveFloat, PositiveInt


class HeldNoise:
    """Holds each environment's standard normal noise for n decisions, n from a truncated zeta distribution.

    P(n) is proportional to n^-exponent for n from 1 to max_steps (arXiv 2604.04539). The mean and the standard
    deviation of the action still follow the observation in every step.

    With `through_episodes` noise is held across the end of an episode, as in FlashSAC.
    """

    def __init__(
        self,
        device: torch.device,
        exponent: PositiveFloat = 2.0,
        max_steps: PositiveInt = 16,
        through_episodes: bool = False,
    ):
        self._device, self._through_episodes = device, through_episodes
        weights = np.arange(1.0, max_steps + 1) ** -exponent
        self._cdf = np.cumsum(weights)[:-1] / weights.sum()  # P(n <= 1), P(n <= 2), …, without the last, 1
        # Seeded differently from the policy's generator, so that times and noise come from different random numbers.
        seed = int(np.random.SeedSequence([torch.initial_seed(), 1]).generate_state(1)[0])
        self._generator = torch.Generator().manual_seed(seed)
        self._decisions_left = np.zeros(0, int)  # (num_envs,)
        self._noise = torch.zeros(0, device=device)  # (num_envs, noise_dim)

    def __call__(self, draw: Callable[[int], Tensor], num_envs: int) -> Tensor:
        """Returns this step's noise, (num_envs, noise_dim); redraws all of it if the number of environments changes.

        `draw` draws standard normal noise (rows, noise_dim) for a number of rows.
        """
        if len(self._decisions_left) != num_envs:
            self._decisions_left = np.zeros(num_envs, int)
        expired = np.flatnonzero(self._decisions_left == 0)
        if len(expired):
            fresh = draw(len(expired))
            if len(expired) == num_envs:
                self._noise = fresh
            else:
                self._noise[torch.from_numpy(expired).to(self._device, non_blocking=True)] = fresh
            uniform = torch.rand(len(expired), dtype=torch.float64, generator=self._generator).numpy()
            self._decisions_left[expired] = 1 + np.searchsorted(self._cdf, uniform, side="right")
        self._decisions_left -= 1
        return self._noise

    def release(self, ended: np.ndarray) -> None:
        """Makes the next step draw new noise where an episode has ended; `ended` is a mask (num_envs,)."""
        if not self._through_episodes and len(self._decisions_left) == len(ended):
            self._decisions_left[ended] = 0

    def state_dict(self) -> dict[str, Any]:
        generator, steps_left = self._generator.get_state(), self._decisions_left.tolist()
        return {"generator": generator, "steps_left": steps_left, "noise": self._noise.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["generator"].cpu())
        self._decisions_left = np.array(state["steps_left"], int)
        self._noise = state["noise"].to(self._device, copy=True)
