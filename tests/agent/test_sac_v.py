"""Value-network agents against independent computations; the likelihood-ratio gradient against the exact one."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from agents import ACTION_DIM, SMALL, Always, Silent, make_agent, make_batch
from formulas import Adam, Network, assert_same, batches, mlp, update

from replay_buffer import Batch

SMALLER = (*SMALL, "agent.value.hidden_dim=16")
LR, GAMMA = 3e-4, 0.99


def log_density(shares: torch.Tensor, mu: torch.Tensor, std: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """log of sum_k w_k prod_j N(u_j; mu_kj, std_kj) / (1 - tanh(u_j)^2), written out."""
    normal = torch.exp(-((u.unsqueeze(1) - mu) ** 2) / (2 * std**2)) / (std * math.sqrt(2 * math.pi))
    return torch.log((shares * normal.prod(2)).sum(1)) - torch.log(1 - torch.tanh(u) ** 2).sum(1)


class SacV:
    """All losses of the old values, then all steps, then V's slow copy.

    Actor and slow copy step in every second update. The original of 2018 steps all in each; it has a mixture, a fixed
    temperature, and a critic that alone judges actions.
    """

    def __init__(self, agent: Any, original: bool, reparameterised: bool, normal_prior: bool):
        self.parts = {name: getattr(agent, name) for name in ("actor", "critic", "value", "value_target")}
        self.actor, self.critic, self.value, self.slow = (Network.of(x.trunk, mlp) for x in self.parts.values())
        self.log_alpha = {"log": torch.zeros((), requires_grad=True)}
        nets = {"actor": self.actor.weights, "critic": self.critic.weights, "value": self.value.weights}
        self.adams = {name: Adam(weights) for name, weights in {**nets, "alpha": self.log_alpha}.items()}
        self.original, self.reparameterised, self.normal_prior = original, reparameterised, normal_prior

    def q(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return torch.stack([critic(torch.cat([obs, action], 1))[:, 0] for critic in self.critic.members()])

    def update(self, batch: Batch, eps: torch.Tensor, u: torch.Tensor, count: int) -> None:
        out, alpha = self.actor(batch.obs), self.log_alpha["log"].detach().exp()
        if self.original:
            parts = out.view(len(out), -1, 2 * ACTION_DIM + 1)
            shares, mu, s = torch.softmax(parts[:, :, 0], 1), *parts[:, :, 1:].chunk(2, 2)
            log_std = s.clamp(-20, 2)
        else:
            shares, (mu, s) = torch.ones(len(out), 1), out[:, None].chunk(2, 2)
            log_std = -5 + 3.5 * (torch.tanh(s) + 1)
        if self.reparameterised:
            u = mu[:, 0] + torch.exp(log_std[:, 0]) * eps
        log_pi, a = log_density(shares, mu, torch.exp(log_std), u), torch.tanh(u)
        log_p = (-(a**2) / 2 - math.log(2 * math.pi) / 2).sum(1) if self.normal_prior else torch.zeros(len(a))
        q_new, v, weight = self.q(batch.obs, a), self.value(batch.obs)[:, 0], 0.5 if self.original else 1.0
        with torch.no_grad():
            y = 2 * batch.reward[:, 0] + GAMMA * batch.discount[:, 0] * self.slow(batch.next_obs)[:, 0]
            v_target = q_new.min(0).values - alpha * log_pi + log_p
        losses = {
            "critic": weight * ((self.q(batch.obs, batch.action) - y) ** 2).mean(1).sum(),
            "value": weight * ((v - v_target) ** 2).mean(),
        }
        judged = q_new[0] if self.original else q_new.min(0).values
        if self.original or count % 2 == 0:
            if self.reparameterised:
                losses["actor"] = (alpha * log_pi - judged - log_p).mean()
            else:
                losses["actor"] = (log_pi * (alpha * log_pi - judged + v - log_p).detach()).mean()
            if self.original:
                losses["actor"] = losses["actor"] + 0.001 / 2 * ((mu**2).mean() + (log_std**2).mean())
        if not self.original:
            losses["alpha"] = self.log_alpha["log"].exp() * (ACTION_DIM - log_pi.detach().mean())
        for name, loss in losses.items():
            self.adams[name].step(loss, LR)
        if self.original or count % 2 == 0:
            tau = 0.01 if self.original else 0.005
            for name, weight in self.value.weights.items():
                self.slow.weights[name] = (1 - tau) * self.slow.weights[name].detach() + tau * weight.detach()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("prior", ["uniform", "normal"])
@pytest.mark.parametrize("gradient", ["reparameterised", "likelihood_ratio"])
@pytest.mark.parametrize("which", ["sac_v", "sac_2018"])
def test_fifty_updates_are_those_of_the_formulas(which: str, gradient: str, prior: str) -> None:
    overrides = [f"agent={which}", f"agent.policy_gradient={gradient}", f"agent.action_prior={prior}", "reward_scale=2"]
    original, reparameterised = which == "sac_2018", gradient == "reparameterised"
    overrides += ["agent.actor.num_components=1"] if original and reparameterised else []
    overrides += [] if original else ["agent.actor.log_std_bounds=[-5,2]"]
    agent = make_agent(*overrides, *SMALLER)
    expected = SacV(agent, original, reparameterised, prior == "normal")
    for count, (batch, eps, more) in enumerate(batches(50, 32)):
        eps = torch.cat([eps, more], 1)[:, : agent.actor.noise_dim]  # a mixture's has one number more
        u = agent.actor(batch.obs).sample_u(eps).detach()
        update(agent, batch, eps)
        expected.update(batch, eps, u, count)
    for name, part in expected.parts.items():
        assert_same(part.trunk, expected.slow if name == "value_target" else getattr(expected, name))
    assert agent.alpha.item() == pytest.approx(expected.log_alpha["log"].exp().item(), abs=1e-8)


def test_the_originals_diagnostics() -> None:
    agent, batch, log = make_agent("agent=sac_2018", *SMALLER), make_batch(32), Silent()
    with torch.no_grad():
        q1, q2 = agent.critic(batch.obs, batch.action)
        v = agent.value(batch.obs)
        y = batch.reward + 0.99 * batch.discount * agent.value_target(batch.next_obs)
    agent.update(Always(batch), log, 0)
    expected = {
        "qf1-avg": q1.mean(),
        "qf1-std": q1.std(correction=0),
        "qf2-avg": q2.mean(),
        "qf2-std": q2.std(correction=0),
        "mean-qf-diff": (q1 - q2).abs().mean(),
        "vf-avg": v.mean(),
        "vf-std": v.std(correction=0),
        "mean-sq-bellman-error1": 0.5 * (q1 - y).square().mean(),
        "mean-sq-bellman-error2": 0.5 * (q2 - y).square().mean(),
    }
    for name, value in expected.items():
        assert log.values[f"train/{name}"] == pytest.approx(value.item(), rel=1e-4), name


def test_evaluation_takes_the_component_with_the_largest_q1() -> None:
    agent = make_agent("agent=sac_2018", "agent.actor.num_components=3", *SMALLER)
    obs = make_batch(20).obs
    actions = torch.tanh(agent.actor(obs).mu)  # (20, 3, |A|)
    for row, chosen in enumerate(agent.act(obs.numpy())):
        q1 = agent.critic(obs[row].expand(3, -1), actions[row])[0, :, 0]
        np.testing.assert_allclose(chosen, actions[row, q1.argmax()].detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["sac", "sac_v", "sac_2018", "crossq"])
def test_the_target_entropy_is_so_much_for_each_action(name: str) -> None:
    per_dim = (f"agent={name}", "agent.target_entropy_per_dim=-0.5")
    assert make_agent(*per_dim, *SMALL).schedules.target_entropy == -0.5 * ACTION_DIM
    assert make_agent(f"agent={name}", *SMALL).schedules.target_entropy == -ACTION_DIM
    assert make_agent(*per_dim, "agent.target_entropy=-2", *SMALL).schedules.target_entropy == -2
