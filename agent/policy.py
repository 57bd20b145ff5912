"""Policies that choose actions: an actor's, without what training needs, and a uniform one.

A policy's file holds weights and the names and arguments of the networks' classes. Loading it runs none of its code.
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agent.execution.tracing import Tensors
from agent.exploration import HeldNoise
from settings.trust import find_class, is_within
from utils import UserError, replacing, restore_generator

FORMAT = "policy-2"

Recipe = dict[str, Any]  # {"target": dotted name of a network's class, "kwargs": plain values and recipes}


class Policy:
    """Chooses actions with an actor, which maps observations (B, obs_dim), or images (B, C, H, W), to a distribution.

    The generator draws the noise of samples. A mixture's greedy action needs a critic, whose first member rates the
    components. The normaliser (agent.normalise) is applied to observations first.
    """

    def __init__(
        self,
        actor: nn.Module,
        action_range: tuple[float, float],
        device: torch.device,
        generator: torch.Generator,
        critic: nn.Module | None = None,
        observation_normaliser: nn.Module | None = None,
    ):
        self.actor: Any = actor
        self.critic: Any = critic
        self.observation_normaliser = observation_normaliser
        self.action_range, self.device, self.generator = action_range, device, generator
        self.choose: Callable[[Tensors], Tensors] = self.actions  # or `actions`, traced (run/execution.py)
        self.training = False
        self._pinned = torch.empty(0)  # pinned memory from which observations are sent to a GPU

    def train(self, training: bool = True) -> None:
        """Does nothing: a policy is always in evaluation mode."""

    @property
    def networks(self) -> dict[str, Any]:
        """The networks, by the names of the constructor's arguments."""
        named = {name: getattr(self, name) for name in ("actor", "critic", "observation_normaliser")}
        return {name: network for name, network in named.items() if network is not None}

    def weights(self) -> dict[str, Any]:
        """Returns a copy of the networks' states, by name."""
        return {name: copy.deepcopy(network.state_dict()) for name, network in self.networks.items()}

    def with_weights(self, weights: dict[str, Any]) -> "Policy":
        """Returns a copy of this policy with other weights, as returned by `weights`."""
        networks = copy.deepcopy(self.networks)
        for name, network in networks.items():
            network.load_state_dict(weights[name])
        generator = torch.Generator(self.device)
        return Policy(**networks, action_range=self.action_range, device=self.device, generator=generator)

    def noise(self, batch_size: int) -> Tensor:
        """Draws the standard normal numbers of one sample per row, (B, noise_dim)."""
        return torch.randn(batch_size, self.actor.noise_dim, device=self.device, generator=self.generator)

    @torch.no_grad()
    def act(self, obs: Any, sample: bool = False, held: HeldNoise | None = None) -> Any:
        """Chooses actions, as Agent.act; for a tensor, returns a tensor on the policy's device.

        `held` holds the noise of samples for several steps; None draws new noise in every step.
        """
        is_batch = obs.ndim in (2, 4)
        is_bytes = obs.ndim > 2 or obs.dtype == np.uint8  # images, alone or with vectors
        batch = self._to_device(torch.as_tensor(obs, dtype=torch.uint8 if is_bytes else torch.float32))
        batch = batch if is_batch else batch.unsqueeze(0)
        inputs = [batch]
        if sample:
            inputs.append(self.noise(len(batch)) if held is None else held(self.noise, len(batch)))
        action: Any = self.choose(inputs)[0]
        if not isinstance(obs, Tensor):
            action = action.cpu().numpy()
        return action if is_batch else action[0]

    def actions(self, inputs: Tensors) -> Tensors:
        """The tensor operations of `act`: [obs (B, obs_dim)] or [obs, noise (B, noise_dim)] -> [actions (B, |A|)]."""
        obs, *noise = inputs
        obs = self._normalise(obs)
        dist = self.actor(obs)
        action = dist.sample(*noise) if noise else dist.greedy(lambda actions: self._q1(obs, actions))
        return [action.clamp(*self.action_range).to(action.dtype)]

    @torch.no_grad()
    def log_probs(self, obs: np.ndarray) -> np.ndarray:
        """Returns log pi(a|o) of every discrete action, (B, |A|)."""
        return self.actor(self._normalise(self._to_device(torch.from_numpy(obs)))).log_probs.cpu().numpy()

    def _normalise(self, obs: Tensor) -> Tensor:
        return obs if self.observation_normaliser is None else self.observation_normaliser(obs)

    def _to_device(self, obs: Tensor) -> Tensor:
        """Sends observations without waiting for the GPU; copying the actions back is the only wait of a step."""
        if self.device.type == "cuda" and not obs.is_cuda:
            if self._pinned.shape != obs.shape:
                self._pinned = torch.empty(obs.shape, dtype=obs.dtype, pin_memory=True)
            obs = self._pinned.copy_(obs)  # safe: the previous copy is done, as `act` has returned its actions
        return obs.to(self.device, non_blocking=True)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        restore_generator(self.generator, state["generator"])

    def _q1(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Returns the first critic's values of K actions for each observation, (B, K, |A|) -> (B, K)."""
        num_actions = actions.shape[1]
        repeated = obs.repeat_interleave(num_actions, 0)
        return self.critic(repeated, actions.reshape(-1, actions.shape[2]))[0].view(-1, num_actions)


class UniformPolicy:
    """Draws uniform actions, whatever the observation: the policy of the seed steps."""

    def __init__(self, action_dim: int, action_range: tuple[float, float], seed: int, discrete: bool = False):
        self._action_dim, self._action_range, self._discrete = action_dim, action_range, discrete
        self._rng = np.random.default_rng(seed)

    def act(self, obs: np.ndarray, sample: bool = True) -> np.ndarray:
        batch = obs.shape[:1] if obs.ndim in (2, 4) else ()
        if self._discrete:
            return self._rng.integers(self._action_dim, size=(*batch, 1))
        return self._rng.uniform(*self._action_range, (*batch, self._action_dim)).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]


def recipe(factory: Any, **shapes: Any) -> Recipe:
    """Returns how to rebuild a factory's network: its class's name and its arguments, with factories as recipes."""
    keywords: dict[str, Any] = {}
    if isinstance(factory, partial):  # which joins nested ones
        factory, keywords = factory.func, factory.keywords
    kwargs = {name: recipe(value) if callable(value) else value for name, value in keywords.items()}
    return {"target": f"{factory.__module__}.{factory.__qualname__}", "kwargs": {**kwargs, **shapes}}


def plain_policy(policy: Policy) -> dict[str, Any]:
    """Returns what a policy's file holds: weights, shapes and the action range, as tensors and plain values.

    Raises:
        UserError: for a network that the agent's `build` did not make, which keeps its recipe.
    """
    networks = {}
    for name, network in policy.networks.items():
        if not hasattr(network, "recipe"):
            raise UserError(f"{name}: {type(network).__name__} was not made by the agent's `build`, which keeps how")
        networks[name] = network.recipe | {"weights": network.state_dict()}
    return {"format": FORMAT, "networks": networks, "action_range": list(policy.action_range)}


def save_policy(policy: Policy, path: str | Path) -> None:
    """Writes a policy into a file; see `plain_policy`."""
    state = plain_policy(policy)
    with replacing(Path(path)) as partial_path:
        torch.save(state, partial_path)


def load_policy(path: str | Path, device: str = "cpu", seed: int = 0, trusted: Sequence[str] = ()) -> Policy:
    """Rebuilds a saved policy, without a configuration.

    Args:
        trusted: the user's packages, whose networks the file may name beside this project's.

    Raises:
        UserError: if the file is no policy of this format, or names another network.
    """
    try:
        saved = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # a damaged file, or one that holds more than weights, can make torch raise anything
        raise UserError(f"{path}: not a policy that can be read ({type(error).__name__})") from None
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise UserError(f"{path}: not a policy of format {FORMAT}")

    def factory_of(part: Recipe) -> Any:
        target, kwargs = part["target"], part["kwargs"]
        network = find_class(target, ("agent",), trusted)
        if network is None or not (is_within(target, trusted) or issubclass(network, nn.Module)):
            raise UserError(f"{path}: it needs {target}, not one of this project's networks or of a package in trust=")
        return partial(network, **{k: factory_of(arg) if isinstance(arg, dict) else arg for k, arg in kwargs.items()})

    networks: dict[str, Any] = {}
    for name, part in saved["networks"].items():
        network = networks[name] = factory_of(part)().to(device).eval()
        network.load_state_dict(part["weights"])
        network.recipe = {key: part[key] for key in ("target", "kwargs")}  # so that it can be saved again
    low, high = saved["action_range"]
    generator = torch.Generator(device).manual_seed(seed)
    return Policy(**networks, action_range=(low, high), device=torch.device(device), generator=generator)
