"""SAC's update against an independent computation, and what its state must carry."""

import copy
import inspect
from typing import Any

import composed
import numpy as np
import pytest
import torch
from agents import (
    ACTION_DIM,
    SMALL,
    Always,
    Given,
    Silent,
    double,
    make_agent,
    make_batch,
    mlp64,
    q64,
    relative,
)

from agent.crossq import CrossQAgent
from agent.sac import SACAgent
from agent.sac_discrete import SACDiscreteAgent
from agent.soft_actor import SoftActor
from replay_buffer import Batch


def small_agent(*overrides: str) -> Any:
    return make_agent(*SMALL, *overrides)


def noise(size: int) -> torch.Tensor:
    return torch.randn(size, ACTION_DIM)


def policy64(weights: list[torch.Tensor], obs: torch.Tensor, eps: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """tanh(u), log pi and the margin in float64, with the change of variables as textbooks write it."""
    x, margin = mlp64(weights, obs)
    mu, s = x[:, :ACTION_DIM], x[:, ACTION_DIM:]
    log_std = -5 + 3.5 * (torch.tanh(s) + 1)
    u = mu + torch.exp(log_std) * eps
    normal = torch.distributions.Normal(mu, torch.exp(log_std)).log_prob(u)
    return torch.tanh(u), (normal - torch.log(1 - torch.tanh(u) ** 2)).sum(1), margin


def clear(margin: torch.Tensor, count: int) -> torch.Tensor:
    """The indices of the first `count` rows where no ReLU's input is closer to 0 than any processor's float32 rounding.

    Closer to 0, rounding decides the ReLU's derivative. Of two million inputs a few are that close, and as the mean
    gradient is small, each shows in its fourth digit.
    """
    rows = (margin > 2e-6).nonzero()[:count, 0]
    assert len(rows) == count
    return rows


def test_full_size_critic_update_equals_the_formulas_in_float64() -> None:
    agent, batch, eps = make_agent(), make_batch(1200), noise(1000)
    with torch.no_grad():  # fresh targets equal the critics; make them differ
        for parameter in agent.critic_target.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    actor, critic, target = double(agent.actor), double(agent.critic), double(agent.critic_target)
    rows = clear(q64(critic, batch.obs.double(), batch.action.double())[1], 1000)
    batch = Batch(*(tensor[rows] for tensor in batch))
    obs, action, reward, next_obs, discount = (tensor.double() for tensor in batch)

    metrics, _ = agent.update_critic(batch, eps, agent.alpha)

    with torch.no_grad():
        next_action, next_log_prob, _ = policy64(actor, next_obs, eps.double())
        next_q = q64(target, next_obs, next_action)[0].min(0).values
        y = reward[:, 0] + 0.99 * discount[:, 0] * (next_q - 0.1 * next_log_prob)
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
    action, _, margin = policy64(actor, obs.double(), eps.double())
    rows = clear(torch.minimum(margin, q64(critic, obs.double(), action)[1]), 1024)
    obs, eps = obs[rows], eps[rows]

    metrics, _ = agent.update_actor_and_temperature(obs, Given(eps), agent.alpha)

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


@pytest.mark.parametrize("name", ["sac", "crossq"])
def test_histograms_are_of_what_the_update_saw(name: str) -> None:
    agent, before = (small_agent(f"agent={name}", "agent.actor_update_at=first") for _ in range(2))
    batch, eps = make_batch(32), noise(32)
    _, seen = agent.update_step(batch, Given(eps, eps))
    policy = before.actor(batch.obs)
    assert seen.keys() == {"q", "mu", "log_std"}
    torch.testing.assert_close(seen["mu"], policy.mu.detach())
    torch.testing.assert_close(seen["log_std"], policy.log_std.detach())
    if name == "sac":
        torch.testing.assert_close(seen["q"], before.critic(batch.obs, batch.action).detach())
    assert seen["q"].shape == (2, 32, 1) and not any(tensor.requires_grad for tensor in seen.values())  # type: ignore[attr-defined]


def test_a_deep_copy_is_refused() -> None:
    """The views of its networks would show weights that no longer change."""
    with pytest.raises(TypeError, match=r"load this one's state_dict\(\)$"):
        copy.deepcopy(make_agent())


def test_each_optimizer_has_its_own_numbers() -> None:
    asked = {"actor": (0.1, [0.2, 0.3], 0.4), "critic": (0.5, [0.6, 0.7], 0.8), "alpha": (0.9, [0.15, 0.25], 0.0)}
    keys = [f"agent.{name}_{key}={asked[name][i]}" for name in asked for i, key in enumerate(("lr", "betas"))]
    optimizers = small_agent(*keys, "agent.actor_weight_decay=0.4", "agent.critic_weight_decay=0.8").optimizers
    constants = {name: (adam._known_lr, adam._constants) for name, adam in optimizers.items()}
    assert asked == {name: (lr, [c["beta1"], c["beta2"]], c["weight_decay"]) for name, (lr, c) in constants.items()}


@pytest.mark.parametrize(
    ("agent", "name"),
    [(SoftActor, "sac"), (SACAgent, "sac"), (CrossQAgent, "crossq"), (SACDiscreteAgent, "sac_discrete")],
)
def test_defaults_for_use_as_a_library_are_the_yamls(agent: type, name: str) -> None:
    node = composed.settings(f"agent={name}").agent
    defaults = {
        key: parameter.default
        for key, parameter in inspect.signature(agent.__init__).parameters.items()  # type: ignore[misc]
        if parameter.default is not inspect.Parameter.empty
    }
    assert defaults and defaults == {key: node[key] for key in defaults}


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


def test_an_unlearnable_temperature_stays() -> None:
    agent = small_agent("agent.learnable_temperature=false", "agent.init_temperature=0.3")
    metrics, _ = agent.update_step(make_batch(32), Given(noise(32), noise(32)))
    assert agent.temperature().item() == pytest.approx(0.3)
    assert "train_alpha/loss" not in metrics


def test_what_is_shown_of_alpha_is_what_the_update_went_by() -> None:
    agent = small_agent("agent.temperature.form=direct", "agent.init_temperature=0.3", "agent.alpha_lr=0.1")
    metrics, _ = agent.update_step(make_batch(32), Given(noise(32), noise(32)))
    assert metrics["train_alpha/value"].item() == pytest.approx(0.3)
    assert abs(agent.alpha.item() - 0.3) > 0.05  # alpha itself is the parameter, and it has stepped


def test_minimum_over_any_number_of_critics_and_scaled_rewards() -> None:
    agent, batch, eps = small_agent("agent.critic.num_critics=4", "reward_scale=3"), make_batch(32), noise(32)
    with torch.no_grad():
        action, log_prob = agent.actor(batch.next_obs).rsample_with_log_prob(eps)
        lowest = torch.stack(list(agent.critic_target(batch.next_obs, action))).min(0).values
        y = 3 * batch.reward + 0.99 * batch.discount * (lowest - 0.1 * log_prob)
        expected = sum((q - y).square().mean() for q in agent.critic(batch.obs, batch.action))
    metrics, _ = agent.compute_update(batch, Given(eps, eps))
    torch.testing.assert_close(metrics["train_critic/loss"], expected)


def test_numbers_on_a_schedule_follow_the_step_and_survive_a_restart() -> None:
    linear = "{_target_: agent.schedule.Linear, start: 1e-3, final: 0, steps: 100}"
    overrides = (f"agent.critic_lr={linear}", f"agent.discount={linear}", f"agent.init_temperature={linear}")
    agent, other = (small_agent("agent/temperature=fixed", *overrides) for _ in range(2))
    agent.update(Always(make_batch(32)), Silent(), 75)
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    for restored in (agent, other):
        assert restored.optimizers["critic"].lr.item() == pytest.approx(2.5e-4)
        assert restored.schedules.discount == pytest.approx(2.5e-4)
        assert restored.temperature().item() == pytest.approx(2.5e-4)
