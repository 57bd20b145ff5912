"""TD3's update against an independent computation, and what its actor does."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from agents import (
    ACTION_DIM,
    OBS_DIM,
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

from agent.policy_file import load_policy
from utils import UserError


def test_an_update_equals_the_formulas_in_float64() -> None:
    agent, batch, eps = make_agent("agent=td3", *SMALL), make_batch(64), 3 * torch.randn(64, ACTION_DIM)
    with torch.no_grad():  # fresh targets equal the networks; tell them apart
        for network in (agent.actor_target, agent.critic_target):
            for parameter in network.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    names = ("actor", "critic", "actor_target", "critic_target")
    actor, critic, slow_actor, slow_critic = (double(agent.modules[name]) for name in names)
    obs, action, reward, next_obs, discount = (tensor.double() for tensor in batch)

    metrics, _ = agent.compute_update(batch, Given(eps))

    noise = (0.2 * eps.double()).clamp(-0.5, 0.5)
    assert (noise.abs() == 0.5).any()  # so that the clip is seen
    next_action = (torch.tanh(mlp64(slow_actor, next_obs)[0]) + noise).clamp(-1, 1)
    y = reward[:, 0] + 0.99 * discount[:, 0] * q64(slow_critic, next_obs, next_action)[0].min(0).values.detach()
    critic_loss = ((q64(critic, obs, action)[0] - y) ** 2).mean(1).sum()
    gradients = torch.autograd.grad(critic_loss, critic)
    assert relative([metrics["train_critic/loss"]], [critic_loss.detach()]) < 1e-5
    assert relative([p.grad for p in agent.critic.parameters()], list(gradients)) < 1e-5

    stepped = double(agent.critic)  # the actor maximises the first critic as it is after its step
    actor_loss = -q64(stepped, obs, torch.tanh(mlp64(actor, obs)[0]))[0][0].mean()
    gradients = torch.autograd.grad(actor_loss, actor)
    assert relative([metrics["train_actor/loss"]], [actor_loss.detach()]) < 1e-5
    assert relative([p.grad for p in agent.actor.parameters()], list(gradients)) < 1e-5
    for target, old, online in (
        (agent.actor_target, slow_actor, agent.actor),
        (agent.critic_target, slow_critic, agent.critic),
    ):
        moved = [t.detach() + 0.005 * (p.double() - t.detach()) for t, p in zip(old, online.parameters(), strict=True)]
        assert relative(list(target.parameters()), moved) < 1e-6


def test_the_actor_and_every_target_wait_for_every_second_update() -> None:
    agent, buffer = make_agent("agent=td3", *SMALL), Always(make_batch(32))
    moved = []
    for step in range(4):
        before = copy.deepcopy({name: module.state_dict() for name, module in agent.modules.items()})
        agent.update(buffer, Silent(), step)
        now = {name: module.state_dict() for name, module in agent.modules.items()}
        moved.append({name for name in now if any(not torch.equal(now[name][k], before[name][k]) for k in now[name])})
    everything = {"actor", "critic", "actor_target", "critic_target"}
    assert moved == [everything, {"critic"}] * 2


def test_noise_of_a_fixed_size_in_training_and_none_in_evaluation(tmp_path: Path) -> None:
    agent = make_agent("agent=td3", *SMALL, "agent.actor.exploration_std=0.3")
    obs = np.zeros((20_000, OBS_DIM), np.float32)
    greedy = agent.act(obs)
    np.testing.assert_allclose(greedy, greedy[:1].repeat(len(obs), 0), atol=1e-6)
    noise = agent.act(obs, sample=True) - greedy
    assert noise.std(0) == pytest.approx(0.3, rel=0.05)
    agent.save_policy(tmp_path / "policy.pt")
    policy = load_policy(tmp_path / "policy.pt")
    np.testing.assert_array_equal(policy.act(obs), greedy)
    assert policy.act(obs, sample=True).std(0) == pytest.approx(0.3, rel=0.05)


def test_batch_norm_is_refused() -> None:
    norm = "{_target_: agent.networks.BatchNorm, _partial_: true}"
    with pytest.raises(UserError, match=r"agent\.critic\.network: batch normalisation"):
        make_agent(
            "agent=td3",
            *SMALL,
            f"agent.critic.network={{_target_: agent.networks.NormedMLP, _partial_: true, norm: {norm}}}",
        )
