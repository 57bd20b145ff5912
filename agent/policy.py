"""A policy alone: acting, and a file that holds what acting needs and nothing else."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from agent.exploration import HeldNoise
from agent.recording import RecordedByShape, Tensors
from utils import UserError

FORMAT = "policy-2"
# Where a saved policy's classes may come from.
NETWORK_MODULES = tuple(
    f"agent.{name}" for name in ("actor", "critic", "networks", "layers", "batch_norm", "heads", "normalise")
)
Rebuild = dict[str, Any]  # {"target": dotted name, "kwargs": plain values}


def recipe(factory: Any, **shapes: int) -> Rebuild:
    """How to build a network again: its class by name, and the plain values, or the recipes of parts, it was given."""
    kwargs: dict[str, Any] = {}
    while isinstance(factory, partial):
        factory, kwargs = factory.func, {**factory.keywords, **kwargs}
    kwargs = {name: recipe(value) if callable(value) else value for name, value in kwargs.items()}
    return {"target": f"{factory.__module__}.{factory.__qualname__}", "kwargs": {**kwargs, **shapes}}


class Policy:
    """Chooses actions with an actor; a mixture's greedy choice asks a critic too.

    Args:
        actor: (B, obs_dim) -> a distribution.
        critic: of observations and actions; its first member judges a mixture's components. None if there is none.
        action_range: (low, high) that actions are clamped to.
        device: where the networks are.
        generator: of the samples' noise.
        normaliser: what observations go through first (agent.normalise); None is nothing.
    """

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module | None,
        action_range: tuple[float, float],
        device: torch.device,
        generator: torch.Generator,
        normaliser: nn.Module | None = None,
    ):
        self.actor: Any = actor
        self.normaliser = normaliser
        self.critic = critic
        self.action_range = action_range
        self.device = device
        self.generator = generator
        self.choose: Callable[[Tensors], Tensors] = self.actions  # or that, recorded
        self._pinned = torch.empty(0)  # where observations leave for a GPU from

    def noise(self, batch_size: int) -> torch.Tensor:
        """Standard normal, (B, noise_dim): what one sample of the actor takes."""
        return torch.randn(batch_size, self.actor.noise_dim, device=self.device, generator=self.generator)

    @torch.no_grad()
    def act(self, obs: np.ndarray, sample: bool = False, held: HeldNoise | None = None) -> np.ndarray:
        """As Agent.act: (obs_dim,) or (B, obs_dim) in, (|A|,) or (B, |A|) float32 out.

        Args:
            held: what holds the samples' noise for several steps; None draws it anew in each.
        """
        obs_tensor = self._to_device(torch.as_tensor(obs, dtype=torch.float32))
        batch = obs_tensor if obs_tensor.dim() == 2 else obs_tensor.unsqueeze(0)
        inputs = [batch]
        if sample:
            inputs.append(self.noise(len(batch)) if held is None else held(self.noise, len(batch)))
        action = self.choose(inputs)[0].cpu().numpy()
        return action if obs_tensor.dim() == 2 else action[0]

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
        if self.device.type != "cuda":
            return obs
        if self._pinned.shape != obs.shape:
            self._pinned = torch.empty(obs.shape, pin_memory=True)
        self._pinned.copy_(obs)  # the copy before has arrived: `act` returned its actions
        return self._pinned.to(self.device, non_blocking=True)

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
        rows, choices = actions.shape[:2]
        repeated = obs.repeat_interleave(choices, dim=0)
        return self.critic(repeated, actions.flatten(0, 1))[0].view(rows, choices)


def save_policy(policy: Policy, recipes: dict[str, Rebuild], path: Path) -> None:
    """Writes weights, shapes and the action range: tensors and plain values only.

    Args:
        policy: what is saved.
        recipes: `actor`, for a mixture `critic`, and `observation_normaliser` if there is one (see `recipe`).
        path: of the file.

    Raises:
        UserError: for a network that `load_policy` would refuse.
    """
    for made in recipes.values():
        _factory(made, path)
    networks = {"actor": policy.actor, "critic": policy.critic, "observation_normaliser": policy.normaliser}
    parts = {name: {**made, "weights": networks[name].state_dict()} for name, made in recipes.items()}
    torch.save({"format": FORMAT, "networks": parts, "action_range": list(policy.action_range)}, path)


def load_policy(path: str | Path, device: str = "cpu", seed: int = 0) -> Policy:
    """Rebuilds a saved policy; it needs no buffer, no configuration and no GPU.

    Raises:
        UserError: for a file that cannot be read, is no policy of this format, or names a network that is not ours.
    """
    try:
        saved = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:
        raise UserError(f"{path}: not a policy that can be read ({type(error).__name__})") from None
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise UserError(f"{path}: not a policy of format {FORMAT}")
    try:
        networks = {name: _rebuild(part, path).to(device).eval() for name, part in saved["networks"].items()}
        actor, (low, high) = networks["actor"], saved["action_range"]
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{path}: not a whole policy ({type(error).__name__})") from None
    generator = torch.Generator(device).manual_seed(seed)
    critic, normaliser = networks.get("critic"), networks.get("observation_normaliser")
    return Policy(actor, critic, (low, high), torch.device(device), generator, normaliser)


def _rebuild(part: dict[str, Any], path: str | Path) -> nn.Module:
    network = _factory(part, path)()
    network.load_state_dict(part["weights"])
    return network


def _factory(made: Rebuild, path: str | Path) -> partial[nn.Module]:
    """What `recipe` was made of; parts of a network are factories in their turn."""
    kwargs = {
        name: _factory(value, path) if isinstance(value, dict) else value for name, value in made["kwargs"].items()
    }
    return partial(_network_class(made["target"], path), **kwargs)


def _network_class(target: str, path: str | Path) -> type[nn.Module]:
    """A network class defined in this project's agent package; nothing else that a name could reach."""
    module, _, name = target.rpartition(".")
    found = getattr(import_module(module), name, None) if module in NETWORK_MODULES else None
    if not (isinstance(found, type) and issubclass(found, nn.Module) and found.__module__ == module):
        raise UserError(f"{path}: it needs {target}, which is not one of this project's networks")
    return found


class UniformPolicy:
    """Uniform actions, whatever the observation: who acts before there is anything to learn from."""

    def __init__(self, action_dim: int, action_range: tuple[float, float], seed: int):
        self._dim = action_dim
        self._range = action_range
        self._rng = np.random.default_rng(seed)

    def act(self, obs: np.ndarray, sample: bool = True) -> np.ndarray:
        """(obs_dim,) -> (|A|,), or (B, obs_dim) -> (B, |A|), float32."""
        return self._rng.uniform(*self._range, (*obs.shape[:-1], self._dim)).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]
