"""Value-network agents against independent computations; the likelihood-ratio gradient against the exact one."""

import numpy as np
import pytest
import torch
from agents import ACTION_DIM, SMALL, Always, Given, Silent, double, make_agent, make_batch, mlp64, q64, relative

SMALLER = (*SMALL, "agent.value.hidden_dim=16")


def value64(weights: list[torch.Tensor], obs: torch.Tensor) -> torch.Tensor:
    return mlp64(weights, obs)[:, 0]


def log_density64(weights: torch.Tensor, mu: torch.Tensor, std: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """log of sum_k w_k prod_j N(u_j; mu_kj, std_kj) / (1 - tanh(u_j)^2), written out."""
    normal = torch.exp(-((u.unsqueeze(1) - mu) ** 2) / (2 * std**2)) / (std * np.sqrt(2 * np.pi))
    return torch.log((weights * normal.prod(2)).sum(1)) - torch.log(1 - torch.tanh(u) ** 2).sum(1)


@pytest.mark.parametrize("prior", ["uniform", "normal"])
@pytest.mark.parametrize("gradient", ["reparameterised", "likelihood_ratio"])
@pytest.mark.parametrize("which", ["sac_v", "sac_2018"])
def test_update_equals_the_formulas_in_float64(which: str, gradient: str, prior: str) -> None:
    overrides = [f"agent={which}", f"agent.policy_gradient={gradient}", f"agent.action_prior={prior}", "reward_scale=2"]
    mixture = which == "sac_2018" and gradient == "likelihood_ratio"
    if which == "sac_2018" and not mixture:
        overrides.append("agent.actor.num_components=1")
    if which == "sac_v":  # a std near exp(-9) would leave float32 no digits of (u - mu) / std
        overrides.append("agent.actor.log_std_bounds=[-5,2]")
    agent, batch = make_agent(*overrides, *SMALLER), make_batch(64)
    with torch.no_grad():
        for parameter in agent.value_target.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for module in (agent.actor, agent.critic, agent.value):  # away from the last layers' initial weights
            module.trunk.layers[-1].weight.add_(0.3 * torch.randn_like(module.trunk.layers[-1].weight))
    eps = torch.randn(64, agent.actor.noise_dim)
    actor, critic, value, slow = (double(part) for part in (agent.actor, agent.critic, agent.value, agent.value_target))
    obs, action, reward, next_obs, discount = (tensor.double() for tensor in batch)
    weight, alpha, reg = (0.5, 1.0, 0.001) if which == "sac_2018" else (1.0, 1.0, 0.0)

    u = agent.actor(batch.obs).sample_u(eps).double()
    agent.compute_update(batch, Given(eps))

    out = mlp64(actor, obs)
    if which == "sac_2018":
        parts = out.view(64, -1, 2 * ACTION_DIM + 1)
        shares = torch.softmax(parts[:, :, 0], 1)
        mu, s = parts[:, :, 1 : 1 + ACTION_DIM], parts[:, :, 1 + ACTION_DIM :]
        log_std = s.clamp(-20, 2)
    else:
        shares, mu, s = torch.ones(64, 1).double(), out[:, None, :ACTION_DIM], out[:, None, ACTION_DIM:]
        log_std = -5 + 3.5 * (torch.tanh(s) + 1)
    if gradient == "reparameterised":
        u = mu[:, 0] + torch.exp(log_std[:, 0]) * eps.double()
    log_pi = log_density64(shares, mu, torch.exp(log_std), u)
    a = torch.tanh(u)
    log_p = (-(a**2) / 2 - np.log(np.sqrt(2 * np.pi))).sum(1) if prior == "normal" else torch.zeros(64).double()
    q_new, v = q64(critic, obs, a), value64(value, obs)
    with torch.no_grad():
        y = 2 * reward[:, 0] + 0.99 * discount[:, 0] * value64(slow, next_obs)
        v_target = q_new.min(0).values - alpha * log_pi + log_p
    critic_loss = weight * ((q64(critic, obs, action) - y) ** 2).mean(1).sum()
    value_loss = weight * ((v - v_target) ** 2).mean()
    judged = q_new[0] if which == "sac_2018" else q_new.min(0).values
    if gradient == "reparameterised":
        actor_loss = (alpha * log_pi - judged - log_p).mean()
    else:
        actor_loss = (log_pi * (alpha * log_pi - judged + v - log_p).detach()).mean()
    actor_loss = actor_loss + reg / 2 * ((mu**2).mean() + (log_std**2).mean())

    for part, weights, loss in (
        (agent.critic, critic, critic_loss),
        (agent.value, value, value_loss),
        (agent.actor, actor, actor_loss),
    ):
        grads = torch.autograd.grad(loss, weights, retain_graph=True)
        assert relative([p.grad for p in part.parameters()], list(grads)) < 1e-5
    tau = 0.01 if which == "sac_2018" else 0.005
    moved = [t.detach() + tau * (w.double() - t.detach()) for t, w in zip(slow, agent.value.parameters(), strict=True)]
    assert relative(list(agent.value_target.parameters()), moved) < 1e-6
    if which == "sac_v":
        expected = (1.0 * (-log_pi.detach() + ACTION_DIM)).mean()
        assert agent.temperature.parameter.grad.item() == pytest.approx(expected.item(), rel=1e-5)


def test_delayed_policy_updates_leave_the_others_at_every_one() -> None:
    agent, batch = make_agent("agent=sac_v", *SMALLER), make_batch(32)
    log = Silent()
    changed = []
    for step in range(4):
        parts = (agent.actor, agent.value, agent.critic, agent.value_target, agent.temperature)
        before = [[p.detach().clone() for p in part.parameters()] for part in parts]
        agent.update(Always(batch), log, step)
        changed.append(
            [not all(map(torch.equal, old, part.parameters())) for old, part in zip(before, parts, strict=True)]
        )
    assert changed == [[True] * 5, [False, True, True, False, True]] * 2


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
