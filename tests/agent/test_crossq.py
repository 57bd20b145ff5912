"""The update on joined batches against an independent computation, and what its state must carry."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from agents import ACTION_DIM, OBS_DIM, SMALL, Always, Given, Silent, double, make_agent, make_batch, relative
from torch import nn

from agent.networks.mlp import Linear
from agent.networks.residual import Network
from agent.policy_file import load_policy
from utils import UserError, eval_mode

RENORM = tuple(f"agent.{part}.network.norm.renorm_after=0" for part in ("actor", "critic"))


def noise(size: int) -> torch.Tensor:
    return torch.randn(size, ACTION_DIM)


def stir(agent: Any) -> None:
    """Statistics and weights as after some training."""
    with torch.no_grad():
        for module in agent.modules.values():
            for name, buffer in module.named_buffers():
                if "running" in name:
                    buffer.uniform_(0.5, 1.5)
            for parameter in module.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))


class CrossQ64:
    """CrossQ's networks from its textbook description, layer after layer by autograd, in float64."""

    def __init__(self, network: Network, member: int | None, renormalised: bool):
        self.weights: dict[str, list[torch.Tensor]] = {"scale": [], "shift": [], "weight": [], "bias": []}
        self.running = []
        self.renormalised = renormalised
        pick = (lambda t: t[member]) if member is not None else (lambda t: t)
        for layer in network:
            if isinstance(layer, nn.ReLU):
                continue
            names = ("weight", "bias") if isinstance(layer, Linear) else ("scale", "shift")
            for name in names:
                self.weights[name].append(pick(getattr(layer, name)).detach().double().requires_grad_())
            if not isinstance(layer, Linear):
                self.running.append([pick(t).double().clone() for t in (layer.running_mean, layer.running_var)])

    def __call__(self, x: torch.Tensor, training: bool) -> torch.Tensor:
        for i, (mean, var) in enumerate(self.running):
            if training:
                of_batch, spread = x.mean(0), x.var(0, unbiased=False)
                z = (x - of_batch) / torch.sqrt(spread + 1e-3)
                if self.renormalised:
                    deviation = torch.sqrt(var + 1e-3)
                    r = (torch.sqrt(spread + 1e-3) / deviation).clamp(1 / 3, 3).detach()
                    z = z * r + ((of_batch - mean) / deviation).clamp(-5, 5).detach()
            else:
                z = (x - mean) / torch.sqrt(var + 1e-3)
            x = (z * self.weights["scale"][i] + self.weights["shift"][i]) @ self.weights["weight"][i]
            x = x + self.weights["bias"][i]
            x = torch.relu(x) if i < len(self.running) - 1 else x
        return x

    def parameters(self) -> list[torch.Tensor]:
        return [tensor for tensors in self.weights.values() for tensor in tensors]


def gradients(network: Network, member: int | None) -> list[torch.Tensor]:
    found: dict[str, list[torch.Tensor]] = {"scale": [], "shift": [], "weight": [], "bias": []}
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None
        found[name.rsplit(".", 1)[1]].append(parameter.grad if member is None else parameter.grad[member])
    return [tensor for tensors in found.values() for tensor in tensors]


def policy64(actor: Any, obs: torch.Tensor, eps: torch.Tensor, training: bool) -> tuple[torch.Tensor, torch.Tensor]:
    mu, s = actor(obs, training).chunk(2, dim=1)
    log_std = s.clamp(-20, 2)
    u = mu + torch.exp(log_std) * eps
    log_prob = torch.distributions.Normal(mu, torch.exp(log_std)).log_prob(u) - torch.log(1 - torch.tanh(u) ** 2)
    return torch.tanh(u), log_prob.sum(1)


@pytest.mark.parametrize("renormalised", [False, True])
def test_the_critics_update_equals_the_formulas_in_float64(renormalised: bool) -> None:
    agent, batch, eps = make_agent("agent=crossq", *SMALL, *(RENORM if renormalised else ())), make_batch(64), noise(64)
    stir(agent)
    actor = CrossQ64(agent.actor.trunk, None, renormalised)
    critics = [CrossQ64(agent.critic.trunk, member, renormalised) for member in (0, 1)]
    obs, action, reward, next_obs, discount = (tensor.double() for tensor in batch)
    alpha = agent.temperature().detach()

    metrics, _ = agent._update_critic(batch, torch.cat([batch.obs, batch.next_obs]), eps, alpha)

    with torch.no_grad():
        next_action, next_log_prob = policy64(actor, next_obs, eps.double(), training=False)
    joined = torch.cat([torch.cat([obs, action], 1), torch.cat([next_obs, next_action], 1)])
    values = torch.stack([critic(joined, training=True)[:, 0] for critic in critics])
    soft_value = values[:, 64:].min(0).values.detach() - alpha.double() * next_log_prob
    y = reward[:, 0] + 0.99 * discount[:, 0] * soft_value
    loss = ((values[:, :64] - y) ** 2).mean(1).sum()
    loss.backward()
    assert relative([metrics["train_critic/loss"]], [loss.detach()]) < 1e-5
    for member, critic in enumerate(critics):
        ours = gradients(agent.critic.trunk, member)
        assert relative(ours, [p.grad for p in critic.parameters()]) < 1e-5  # type: ignore[misc]
        first = agent.critic.trunk[0]
        torch.testing.assert_close(
            first.running_mean[member, 0].double(), 0.99 * critic.running[0][0][0] + 0.01 * joined.mean(0)
        )


@pytest.mark.parametrize("renormalised", [False, True])
def test_the_actors_update_equals_the_formulas_in_float64(renormalised: bool) -> None:
    agent, obs, eps = (
        make_agent("agent=crossq", *SMALL, *(RENORM if renormalised else ())),
        make_batch(64).obs,
        noise(64),
    )
    stir(agent)
    actor = CrossQ64(agent.actor.trunk, None, renormalised)
    critics = [CrossQ64(agent.critic.trunk, member, renormalised) for member in (0, 1)]
    before = copy.deepcopy(agent.critic.state_dict())

    alpha = agent.temperature().detach()
    metrics, _ = agent.update_actor_and_temperature(obs, Given(eps), alpha)

    action, log_prob = policy64(actor, obs.double(), eps.double(), training=True)
    values = torch.stack([critic(torch.cat([obs.double(), action], 1), training=False)[:, 0] for critic in critics])
    loss = (alpha.double() * log_prob - values.min(0).values).mean()
    loss.backward()
    assert relative([metrics["train_actor/loss"]], [loss.detach()]) < 1e-5
    assert relative(gradients(agent.actor.trunk, None), [p.grad for p in actor.parameters()]) < 1e-4  # type: ignore[misc]
    assert all(torch.equal(value, before[name]) for name, value in agent.critic.state_dict().items())


def test_unit_lengths_after_every_step_and_targets_that_follow() -> None:
    agent = make_agent("agent=flash_sac", *SMALL, "agent.critic_lr=1e-2", "agent.actor_lr=1e-2")
    buffer = Always(make_batch(32))
    before = [p.clone() for p in agent.critic_target.parameters()]
    for step in range(3):
        agent.update(buffer, Silent(), step)
        for module in (agent.actor, agent.critic):
            for layer in module.modules():
                if isinstance(layer, Linear):
                    lengths = layer.weight.square().sum(-2)
                    torch.testing.assert_close(lengths, torch.ones_like(lengths))
        expected = [old.lerp(new, 0.01) for old, new in zip(before, agent.critic.parameters(), strict=True)]
        torch.testing.assert_close(list(agent.critic_target.parameters()), expected)
        before = [p.clone() for p in agent.critic_target.parameters()]


def test_crossqs_actor_is_normalised_by_obs_alone() -> None:
    agent, batch = make_agent("agent=crossq", *SMALL), make_batch(64)
    agent.update_step(batch, Given(noise(64), noise(64)))
    torch.testing.assert_close(agent.actor.trunk[0].running_mean[0], 0.01 * batch.obs.mean(0))


def test_crossq_has_no_targets_and_a_delayed_actor() -> None:
    agent, buffer = make_agent("agent=crossq", *SMALL), Always(make_batch(32))
    assert agent.critic_target is None
    moved = []
    for step in range(4):
        before = [p.detach().clone() for p in agent.actor.parameters()]
        agent.update(buffer, Silent(), step)
        moved.append(not all(map(torch.equal, before, agent.actor.parameters())))  # type: ignore[arg-type]
    assert moved == [True, False, False, True]


@pytest.mark.parametrize("name", ["crossq", "flash_sac"])
def test_state_dict_continues_the_same_training_statistics_too(name: str) -> None:
    agent, other = (make_agent(f"agent={name}", *SMALL) for _ in range(2))
    buffer, log = Always(make_batch(32)), Silent()
    for step in range(4):
        agent.update(buffer, log, step)
    assert not torch.equal(agent.critic.trunk[0].running_mean, other.critic.trunk[0].running_mean)
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    for continued in (agent, other):
        for step in range(4, 7):
            continued.update(buffer, log, step)
    for a, b in zip(agent.modules.values(), other.modules.values(), strict=True):
        for key, value in a.state_dict().items():
            assert torch.equal(value, b.state_dict()[key]), key


@pytest.mark.parametrize("name", ["crossq", "flash_sac"])
def test_acting_goes_by_the_running_statistics_and_touches_nothing(name: str, tmp_path: Any) -> None:
    agent = make_agent(f"agent={name}", *SMALL)
    agent.update(Always(make_batch(32)), Silent(), 0)
    before = copy.deepcopy(agent.state_dict()["actor"])
    obs = np.random.default_rng(0).normal(size=(5, OBS_DIM)).astype(np.float32)
    actions = agent.act(obs)
    np.testing.assert_allclose(np.stack([agent.act(row) for row in obs]), actions, atol=1e-6)  # rows apart
    with eval_mode(agent):
        np.testing.assert_array_equal(agent.act(obs), actions)
    agent.act(obs, sample=True)
    assert all(torch.equal(value, before[key]) for key, value in agent.state_dict()["actor"].items())
    agent.save_policy(tmp_path / "policy.pt")
    np.testing.assert_array_equal(load_policy(tmp_path / "policy.pt").act(obs), actions)


def test_batch_norm_is_refused_where_batches_are_apart() -> None:
    with pytest.raises(UserError, match=r"agent\.critic\.network: batch normalisation .* agent=crossq"):
        norm = "{_target_: agent.networks.BatchNorm, _partial_: true}"
        make_agent("agent=droq", *SMALL, f"agent.critic.network.norm={norm}")
    with pytest.raises(UserError, match=r"agent\.actor\.network: batch normalisation"):
        network = f"{{_target_: agent.networks.NormedMLP, _partial_: true, norm: {norm}}}"
        make_agent(*SMALL, f"agent.actor.network={network}")


def test_parameters_are_counted_once() -> None:
    agent = make_agent("agent=crossq", *SMALL)
    assert len(double(agent.critic)) == len(agent.optimizers["critic"].parameters) == 12
