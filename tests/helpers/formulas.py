"""Formulas from the methods' papers and their authors' code, in plain float64 operations without anything of agent/.

Also lets an agent make updates on batches and noise that a test knows.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from agents import ACTION_DIM, OBS_DIM, Always, Given, Silent

from replay_buffer import Batch

Tensors = dict[str, torch.Tensor]


@dataclass
class Network:
    """One network's weights and the running statistics of its batch norms, by name; members are the first dimension."""

    weights: Tensors
    running: Tensors
    compute: Callable[["Network", torch.Tensor, bool], torch.Tensor]  # the output, of an input, perhaps in training
    eps: float = 1e-5  # what batch norms add to variances
    kept: float = 0.99  # share of the running statistics that each step keeps
    unbiased: bool = False  # whether the running variance follows the unbiased variance
    seen: Tensors = field(default_factory=dict)  # statistics of the newest batch in training mode

    @classmethod
    def of(cls, trunk: Any, compute: Any, **norms: Any) -> "Network":
        """Copies a trunk's tensors. Buffers that replace biases are left out: they are zeros."""
        weights = {name: tensor.detach().clone().requires_grad_() for name, tensor in trunk.named_parameters()}
        running = {name: tensor.clone() for name, tensor in trunk.named_buffers() if "running" in name}
        return cls(weights, running, compute, **norms)

    def members(self) -> list["Network"]:
        """Returns an ensemble's members as networks; gradients flow to the ensemble's weights."""
        parts = [
            [{name: t[i] for name, t in part.items()} for part in (self.weights, self.running)]
            for i in range(len(next(iter(self.weights.values()))))
        ]
        return [replace(self, weights=weights, running=running, seen={}) for weights, running in parts]

    def __call__(self, x: torch.Tensor, training: bool = False) -> torch.Tensor:
        return self.compute(self, x, training)

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Returns x W + b, or x W if there is no bias of this name."""
        y = x @ self.weights[f"{name}.weight"]
        return y + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else y

    def batch_norm(self, name: str, x: torch.Tensor, training: bool) -> torch.Tensor:
        mean, var = self.running[f"{name}.running_mean"][0], self.running[f"{name}.running_var"][0]
        if training:
            mean = x.sum(0) / len(x)
            squares = ((x - mean) ** 2).sum(0)
            var, followed = squares / len(x), squares / (len(x) - self.unbiased)
            self.seen |= {f"{name}.running_mean": mean.detach()[None], f"{name}.running_var": followed.detach()[None]}
        z = (x - mean) / torch.sqrt(var + self.eps)
        return z * self.weights[f"{name}.scale"][0] + self.weights[f"{name}.shift"][0]

    def layer_norm(self, name: str, x: torch.Tensor, eps: float) -> torch.Tensor:
        centred = x - x.sum(1, keepdim=True) / x.shape[1]
        z = centred / torch.sqrt((centred**2).sum(1, keepdim=True) / x.shape[1] + eps)
        return z * self.weights[f"{name}.scale"][0] + self.weights[f"{name}.shift"][0]

    def follow(self, members: list["Network"] | None = None) -> None:
        """Moves the running statistics towards those of the newest batch that the members, or else this object, saw."""
        for name, old in self.running.items():
            new = self.seen[name] if members is None else torch.stack([member.seen[name] for member in members])
            self.running[name] = self.kept * old + (1 - self.kept) * new


class Adam:
    """Adam with bias correction (arXiv 1412.6980, algorithm 1), and weight decay as in AdamW (arXiv 1711.05101)."""

    def __init__(self, weights: Tensors, weight_decay: float = 0.0, beta1: float = 0.9):
        self.weights, self.weight_decay, self.beta1, self.count = weights, weight_decay, beta1, 0
        self.first = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self.second = {name: torch.zeros_like(weight) for name, weight in weights.items()}

    def step(self, loss: torch.Tensor, lr: float) -> None:
        """Takes a step; it puts new tensors into the dictionary of weights."""
        self.count += 1
        gradients = torch.autograd.grad(loss, list(self.weights.values()))
        for (name, weight), g in zip(list(self.weights.items()), gradients, strict=True):
            self.first[name] = self.beta1 * self.first[name] + (1 - self.beta1) * g
            self.second[name] = 0.999 * self.second[name] + 0.001 * g**2
            m = self.first[name] / (1 - self.beta1**self.count)
            v = self.second[name] / (1 - 0.999**self.count)
            moved = weight.detach() - lr * (m / (torch.sqrt(v) + 1e-8) + self.weight_decay * weight.detach())
            self.weights[name] = moved.requires_grad_()


class SoftActorCritic:
    """The networks, the temperature and the optimizers of a soft actor-critic, copied from an agent.

    A subclass writes out the updates of one algorithm; docs/AGENTS.md names the differences from its authors' code.
    """

    def __init__(self, agent: Any, compute: Any, weight_decay: float = 0.0, **norms: Any):
        self.actor, self.critic, self.slow = (
            Network.of(module.trunk, compute, **norms) for module in (agent.actor, agent.critic, agent.critic_target)
        )
        self.temperature = {"log": agent.temperature.parameter.detach().clone().requires_grad_()}
        self.adams = {name: Adam(getattr(self, name).weights, weight_decay) for name in ("actor", "critic")}
        self.adams["alpha"] = Adam(self.temperature)

    def alpha(self) -> torch.Tensor:
        return self.temperature["log"].detach().exp()

    def move_slow(self, tau: float) -> None:
        """Moves the target critics towards the critics."""
        for name, weight in self.critic.weights.items():
            self.slow.weights[name] = (1 - tau) * self.slow.weights[name].detach() + tau * weight.detach()

    def assert_same(self, agent: Any) -> None:
        """Asserts that an agent's weights, running statistics and temperature equal these to 1e-8."""
        assert_same(agent.actor.trunk, self.actor)
        assert_same(agent.critic.trunk, self.critic)
        assert_same(agent.critic_target.trunk, Network(self.slow.weights, {}, self.slow.compute))
        torch.testing.assert_close(agent.alpha, self.alpha(), rtol=0, atol=1e-8)


def mlp(net: Network, x: torch.Tensor, training: bool) -> torch.Tensor:
    """Linear layers with ReLUs between them, named 0, 2, 4, …"""
    last = len(net.weights) - 2  # each layer has a weight and a bias
    for layer in range(0, last, 2):
        x = torch.relu(net.linear(str(layer), x))
    return net.linear(str(last), x)


def unit_lengths(weights: Tensors, norms: bool) -> None:
    """Sets each unit's incoming weights to length 1 and, if `norms`, each norm's parameters to length sqrt(width)."""
    for name, weight in list(weights.items()):
        if name.endswith("weight"):
            weights[name] = (weight / (weight**2).sum(-2, keepdim=True).sqrt()).detach().requires_grad_()
        elif norms and name.endswith("scale"):
            together = [n for n in (name, name.replace("scale", "shift")) if n in weights]
            length = torch.stack([(weights[n] ** 2).sum(-1, keepdim=True) for n in together]).sum(0).sqrt()
            for n in together:
                weights[n] = (weights[n] * weight.shape[-1] ** 0.5 / length).detach().requires_grad_()


def squashed(mu: torch.Tensor, log_std: torch.Tensor, eps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns a = tanh(u), u = mu + std eps, (B, |A|), and log pi(a|o) = log N(u) - log(1 - tanh(u)^2), (B,)."""
    u = mu + torch.exp(log_std) * eps
    log_density = -((u - mu) ** 2) / (2 * torch.exp(2 * log_std)) - log_std - math.log(2 * math.pi) / 2
    log_slope = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))
    return torch.tanh(u), (log_density - log_slope).sum(1)


def soft_limited(log_std: torch.Tensor) -> torch.Tensor:
    return -10 + 6 * (torch.tanh(log_std) + 1)  # to [-10, 2]


def clamped(log_std: torch.Tensor) -> torch.Tensor:
    return log_std.clamp(-20, 2)


def policy(
    net: Network,
    obs: torch.Tensor,
    eps: torch.Tensor,
    limit: Callable[[torch.Tensor], torch.Tensor],
    training: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns actions (B, |A|) for the first B = len(eps) observations, and their log-densities (B,)."""
    out = net(obs, training)[: len(eps)]
    return squashed(out[:, :ACTION_DIM], limit(out[:, ACTION_DIM:]), eps)


def projected(shares: torch.Tensor, places: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Moves the bins' shares (B, K) to `places` (B, K), and splits each between the two nearest bins."""
    width = centres[1] - centres[0]
    distance = (places.clamp(centres[0], centres[-1]).unsqueeze(2) - centres).abs() / width  # (B, K, K)
    return (shares.unsqueeze(2) * (1 - distance).clamp(min=0)).sum(1)


def discounted_returns(rewards: list[float], ended: list[bool], gamma: float) -> list[float]:
    """Returns G = gamma (1 - ended) G + r after each step, as in FlashSAC's and XQC's code."""
    returns = [0.0]
    for reward, done in zip(rewards, ended, strict=True):
        returns.append(gamma * (1 - done) * returns[-1] + reward)
    return returns[1:]


def batches(count: int, rows: int) -> Iterator[tuple[Batch, torch.Tensor, torch.Tensor]]:
    """Yields batches, each with noise for the critics' and for the actor's part of an update."""
    random = torch.Generator().manual_seed(1)
    for _ in range(count):
        obs, next_obs = torch.randn(2, rows, OBS_DIM, generator=random)
        action = torch.rand(rows, ACTION_DIM, generator=random) * 2 - 1
        reward = torch.randn(rows, 1, generator=random)
        discount = (torch.rand(rows, 1, generator=random) > 0.2).to(obs.dtype)
        eps, more = torch.randn(2, rows, ACTION_DIM, generator=random)
        yield Batch(obs, action, reward, next_obs, discount), eps, more


def update(agent: Any, batch: Batch, *noise: torch.Tensor) -> None:
    """Makes an update on this batch with this noise; its environment step is the number of earlier updates."""
    agent.noise = Given(*noise)
    agent.update(Always(batch), Silent(), agent.num_updates)


def assert_same(trunk: Any, net: Network) -> None:
    """Asserts that a trunk's weights and running statistics equal the formulas' to 1e-8."""
    tensors = dict(trunk.named_parameters()) | dict(trunk.named_buffers())
    for name, tensor in (net.weights | net.running).items():
        torch.testing.assert_close(
            tensors[name].detach(), tensor.detach(), rtol=0, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}"
        )
