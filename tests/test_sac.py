"""SAC's update against an independent computation, and what its state must carry."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate

import cli
from replay_buffer import Batch

OBS_DIM, ACTION_DIM = 17, 6


def make_agent(*overrides: str) -> Any:
    torch.manual_seed(0)
    node = cli.plain(cli.compose_config("train", list(overrides)))["agent"]
    del node["name"]
    shapes = {"obs_dim": OBS_DIM, "action_dim": ACTION_DIM, "action_range": (-1.0, 1.0)}
    return instantiate(node, _convert_="all")(**shapes, device=torch.device("cpu"))


def make_batch(size: int) -> Batch:
    random = torch.Generator().manual_seed(1)
    return Batch(
        obs=torch.randn(size, OBS_DIM, generator=random),
        action=torch.rand(size, ACTION_DIM, generator=random) * 2 - 1,
        reward=torch.randn(size, 1, generator=random),
        next_obs=torch.randn(size, OBS_DIM, generator=random),
        not_done=(torch.rand(size, 1, generator=random) > 0.2).float(),
    )


def small_agent(*overrides: str) -> Any:
    return make_agent("agent.batch_size=32", "agent.critic.hidden_dim=16", "agent.actor.hidden_dim=16", *overrides)


class Always:
    """A buffer with one batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def sample(self, batch_size: int) -> Batch:
        return self.batch


class Silent:
    def log(self, key: str, value: Any, step: int) -> None: ...

    def histograms_due(self, step: int) -> bool:
        return False


def noise(size: int) -> torch.Tensor:
    return torch.randn(size, ACTION_DIM)


def mlp64(weights: list[torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, and how close (by row) any ReLU's input comes to its kink at 0."""
    margin = torch.full((len(x),), torch.inf, dtype=torch.float64)
    for i in range(0, len(weights), 2):
        x = x @ weights[i] + weights[i + 1]
        if i < len(weights) - 2:
            margin = torch.minimum(margin, x.detach().abs().amin(1))
            x = torch.maximum(x, torch.zeros_like(x))
    return x, margin


def policy64(weights: list[torch.Tensor], obs: torch.Tensor, eps: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """tanh(u), log pi and the margin, from textbook formulas: the change of variables as it stands, in float64."""
    x, margin = mlp64([w.mT if w.dim() == 2 else w for w in weights], obs)
    mu, s = x[:, :ACTION_DIM], x[:, ACTION_DIM:]
    log_std = -5 + 3.5 * (torch.tanh(s) + 1)
    u = mu + torch.exp(log_std) * eps
    normal = torch.distributions.Normal(mu, torch.exp(log_std)).log_prob(u)
    return torch.tanh(u), (normal - torch.log(1 - torch.tanh(u) ** 2)).sum(1), margin


def q64(weights: list[torch.Tensor], obs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both critics' values (2, B), and the margin."""
    values, margins = zip(*(mlp64([w[i] for w in weights], torch.cat([obs, action], 1)) for i in (0, 1)), strict=True)
    return torch.stack(values)[:, :, 0], torch.minimum(*margins)


def double(module: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().double().requires_grad_() for parameter in module.parameters()]


def relative(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    a, b = (torch.cat([tensor.double().reshape(-1) for tensor in tensors]) for tensors in (ours, theirs))
    return ((a - b).norm() / b.norm()).item()


def test_full_size_critic_update_equals_the_formulas_in_float64() -> None:
    agent, batch, eps = make_agent(), make_batch(1024), noise(1024)
    with torch.no_grad():  # fresh targets equal the critics; tell them apart
        for parameter in agent.critic_target.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    actor, critic, target = double(agent.actor), double(agent.critic), double(agent.critic_target)
    obs, action, reward, next_obs, not_done = (tensor.double() for tensor in batch)

    metrics, _ = agent._update_critic(batch, eps)

    with torch.no_grad():
        next_action, next_log_prob, _ = policy64(actor, next_obs, eps.double())
        next_q = q64(target, next_obs, next_action)[0].min(0).values
        y = reward[:, 0] + 0.99 * not_done[:, 0] * (next_q - 0.1 * next_log_prob)
    loss = ((q64(critic, obs, action)[0] - y) ** 2).mean(1).sum()
    grads = torch.autograd.grad(loss, critic)
    assert relative([metrics["train_critic/loss"]], [loss.detach()]) < 1e-5
    assert relative([p.grad for p in agent.critic.parameters()], list(grads)) < 1e-5
    # Adam's first step: the bias-corrected moments are g and g^2
    stepped = [w.detach() - 1e-4 * g / (g.abs() + 1e-8) for w, g in zip(critic, grads, strict=True)]
    assert relative([p.detach() for p in agent.critic.parameters()], stepped) < 1e-5


def test_full_size_actor_and_temperature_update_equals_the_formulas_in_float64() -> None:
    agent, obs, eps = make_agent(), make_batch(1400).obs, noise(1400)
    actor, critic = double(agent.actor), double(agent.critic)
    # Where a ReLU's input is closer to 0 than float32's rounding, its derivative is a matter of luck; with two million
    # of them a few are, and as the mean gradient is small each shows in the fourth digit. Take 1024 rows without.
    action, _, margin = policy64(actor, obs.double(), eps.double())
    clear = (torch.minimum(margin, q64(critic, obs.double(), action)[1]) > 2e-6).nonzero()[:1024, 0]
    obs, eps = obs[clear], eps[clear]
    assert len(obs) == 1024

    metrics, _ = agent._update_actor_and_temperature(obs, eps)

    action, log_prob, _ = policy64(actor, obs.double(), eps.double())
    loss = (0.1 * log_prob - q64(critic, obs.double(), action)[0].min(0).values).mean()
    grads = torch.autograd.grad(loss, actor)
    assert relative([metrics["train_actor/loss"]], [loss.detach()]) < 1e-5
    assert relative([p.grad for p in agent.actor.parameters()], list(grads)) < 1e-5

    log_alpha = torch.tensor(np.log(0.1), requires_grad=True)
    alpha_loss = (torch.exp(log_alpha) * (-log_prob.detach() + ACTION_DIM)).mean()
    alpha_loss.backward()
    assert relative([metrics["train_alpha/loss"]], [alpha_loss.detach()]) < 1e-5
    assert relative([agent.temperature.parameter.grad], [log_alpha.grad]) < 1e-5
    assert relative([metrics["train_actor/entropy"]], [-log_prob.detach().mean()]) < 1e-5


def test_targets_start_as_copies_and_take_no_gradient() -> None:
    agent = small_agent()
    for online, target in zip(agent.critic.parameters(), agent.critic_target.parameters(), strict=True):
        assert torch.equal(online, target)
        assert not target.requires_grad


def test_actor_and_targets_follow_their_frequencies() -> None:
    agent = small_agent("agent.actor_update_frequency=3", "agent.critic_target_update_frequency=2")

    def copies() -> tuple[list[torch.Tensor], ...]:
        return tuple([p.detach().clone() for p in part.parameters()] for part in (agent.actor, agent.critic_target))

    moved = []
    buffer, log = Always(make_batch(32)), Silent()
    for step in range(6):
        before = copies()
        agent.update(buffer, log, step)
        moved.append(
            tuple(not all(map(torch.equal, a, b)) for a, b in zip(before, copies(), strict=True))  # type: ignore[arg-type]
        )
    assert [actor for actor, _ in moved] == [True, False, False, True, False, False]
    assert [target for _, target in moved] == [True, False, True, False, True, False]


def test_the_actors_update_leaves_the_critics_gradients_alone() -> None:
    agent, batch = small_agent(), make_batch(32)
    agent._update_critic(batch, noise(32))
    before = [p.grad.clone() for p in agent.critic.parameters()]
    agent._update_actor_and_temperature(batch.obs, noise(32))
    assert all(torch.equal(p.grad, b) for p, b in zip(agent.critic.parameters(), before, strict=True))


def test_an_unlearnable_temperature_stays() -> None:
    agent = small_agent("agent.learnable_temperature=false", "agent.init_temperature=0.3")
    metrics, _ = agent.update_step(make_batch(32), noise(32), noise(32))
    assert agent.temperature().item() == pytest.approx(0.3)
    assert "train_alpha/loss" not in metrics


def test_actions_come_in_the_observations_shape_and_within_range() -> None:
    agent = small_agent()
    single, batch = np.zeros(OBS_DIM, np.float32), 100 * np.random.randn(5, OBS_DIM).astype(np.float32)
    assert agent.act(single).shape == (ACTION_DIM,)
    for sample in (False, True):
        action = agent.act(batch, sample=sample)
        assert action.shape == (5, ACTION_DIM)
        assert action.dtype == np.float32
        assert np.abs(action).max() <= 1
    assert np.array_equal(agent.act(single), agent.act(single))
    assert not np.array_equal(agent.act(single, sample=True), agent.act(single, sample=True))


def test_state_dict_continues_the_same_training() -> None:
    agent, other = small_agent(), small_agent("agent.init_temperature=0.7")
    buffer, log = Always(make_batch(32)), Silent()
    for step in range(3):
        agent.update(buffer, log, step)
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    for continued in (agent, other):
        for step in range(3, 5):
            continued.update(buffer, log, step)
    obs = np.ones((4, OBS_DIM), np.float32)
    assert np.array_equal(agent.act(obs, sample=True), other.act(obs, sample=True))
    assert torch.equal(agent.temperature(), other.temperature())
    q, other_q = (a.critic_target(*make_batch(8)[:2]) for a in (agent, other))
    assert torch.equal(q, other_q)
