"""A policy alone: acting, and a file that holds what acting needs and nothing else."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from agent.execution.tracing import RecordedByShape, Tensors
from agent.exploration import HeldNoise


class Policy:
    """Chooses actions with an actor; a mixture's greedy choice asks a critic too.

    Args:
        actor: (B, obs_dim), or images (B, C, H, W), -> a distribution.
        action_range: (low, high) that actions are clamped to.
        device: where the networks are.
        generator: of the samples' noise.
        critic: of observations and actions; its first member judges a mixture's components. None if there is none.
        normaliser: what observations go through first (agent.normalise); None is nothing.
    """

    def __init__(
        self,
        actor: nn.Module,
        action_range: tuple[float, float],
        device: torch.device,
        generator: torch.Generator,
        critic: nn.Module | None = None,
        normaliser: nn.Module | None = None,
    ):
        self.actor: Any = actor
        self.normaliser = normaliser
        self.critic = critic
        self.action_range = action_range
        self.device = device
        self.generator = generator
        self.choose: Callable[[Tensors], Tensors] = self.actions  # or that, recorded
        self.training = False
        self._pinned = torch.empty(0)  # where observations leave for a GPU from

    def train(self, training: bool = True) -> None:
        """Nothing: it is in evaluation mode always."""

    @property
    def networks(self) -> dict[str, nn.Module]:
        """What it chooses with, by the names of this class's arguments."""
        named = {"actor": self.actor, "critic": self.critic, "normaliser": self.normaliser}
        return {name: network for name, network in named.items() if network is not None}

    def weights(self) -> dict[str, Any]:
        """A copy of the networks' states, by name."""
        return {name: copy.deepcopy(network.state_dict()) for name, network in self.networks.items()}

    def with_weights(self, weights: dict[str, Any]) -> "Policy":
        """Another policy of such networks, with the states that `weights` once returned.

        Raises:
            RuntimeError, KeyError: for those of other networks.
        """
        networks = copy.deepcopy(self.networks)
        for name, network in networks.items():
            network.load_state_dict(weights[name])
        generator = torch.Generator(self.device)
        return Policy(**networks, action_range=self.action_range, device=self.device, generator=generator)

    @contextmanager
    def sampling(self, seed: int) -> Iterator[None]:
        """Within it, noise comes from a stream of its own; the policy's goes on behind it as if nothing had been."""
        own, self.generator = self.generator, torch.Generator(self.device).manual_seed(seed)
        try:
            yield
        finally:
            self.generator = own

    def noise(self, batch_size: int) -> torch.Tensor:
        """Standard normal, (B, noise_dim): what one sample of the actor takes."""
        return torch.randn(batch_size, self.actor.noise_dim, device=self.device, generator=self.generator)

    @torch.no_grad()
    def act(self, obs: np.ndarray, sample: bool = False, held: HeldNoise | None = None) -> np.ndarray:
        """As Agent.act: (obs_dim,) or (B, obs_dim) in, (|A|,) or (B, |A|) float32 out.

        Args:
            obs: images, which are bytes, have three dimensions, or four.
            held: what holds the samples' noise for several steps; None draws it anew in each.
        """
        is_batch = obs.ndim in (2, 4)
        obs_tensor = self._to_device(torch.as_tensor(obs, dtype=torch.float32 if obs.ndim <= 2 else torch.uint8))
        batch = obs_tensor if is_batch else obs_tensor.unsqueeze(0)
        inputs = [batch]
        if sample:
            inputs.append(self.noise(len(batch)) if held is None else held(self.noise, len(batch)))
        action = self.choose(inputs)[0].cpu().numpy()
        return action if is_batch else action[0]

    def actions(self, inputs: Tensors) -> Tensors:
        """Acting's tensor operations: [obs (B, obs_dim)], and to sample noise (B, noise_dim) -> [actions (B, |A|)]."""
        obs, *noise = inputs
        if self.normaliser is not None:
            obs = self.normaliser(obs)
        dist = self.actor(obs)
        action = dist.sample(*noise) if noise else dist.greedy(lambda actions: self._q1(obs, actions))
        return [action.clamp(*self.action_range)]

    def record(self) -> None:
        """Acting, on a CPU, goes by recordings of `actions`, one for each number of rows: the same bytes."""
        self.choose = RecordedByShape(self.actions)

    def _to_device(self, obs: torch.Tensor) -> torch.Tensor:
        """Without waiting for what a GPU does just now; the copy of the actions back is the only wait of a step."""
        if self.device.type == "cuda":
            if self._pinned.shape != obs.shape:
                self._pinned = torch.empty(obs.shape, dtype=obs.dtype, pin_memory=True)
            obs = self._pinned.copy_(obs)  # the copy before has arrived: `act` returned its actions
        return obs.to(self.device, non_blocking=True)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved = state["generator"].cpu()
        if saved.shape == self.generator.get_state().shape:
            self.generator.set_state(saved)
        else:  # of another kind of device, whose numbers cannot go on here: others, as a function of it
            self.generator.manual_seed(int(np.random.SeedSequence(saved.tolist()).generate_state(1)[0]))

    def _q1(self, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """The first critic's values of K actions for each observation, (B, K, |A|) -> (B, K)."""
        assert self.critic is not None
        choices = actions.shape[1]
        repeated = obs.unsqueeze(1).expand(-1, choices, -1).reshape(-1, obs.shape[1])
        return self.critic(repeated, actions.reshape(-1, actions.shape[2]))[0].view(-1, choices)


class UniformPolicy:
    """Uniform actions, whatever the observation: who acts before there is anything to learn from."""

    def __init__(self, action_dim: int, action_range: tuple[float, float], seed: int):
        self._dim = action_dim
        self._range = action_range
        self._rng = np.random.default_rng(seed)

    def act(self, obs: np.ndarray, sample: bool = True) -> np.ndarray:
        """(obs_dim,) -> (|A|,), or (B, obs_dim) -> (B, |A|), float32; of images (C, H, W) likewise."""
        batch = obs.shape[:1] if obs.ndim in (2, 4) else ()
        return self._rng.uniform(*self._range, (*batch, self._dim)).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]
