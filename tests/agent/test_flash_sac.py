"""One whole update of FlashSAC against its description, in plain operations and float64.

What is expected is worked out from the words of the method (arXiv 2604.04539): by no network, head, loss, distribution
or optimizer of ours. Where the words leave it open, it is said.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from agents import ACTION_DIM, Given, make_agent, make_batch

ROWS, GAMMA, TAU, LR, KEPT = 32, 0.99, 0.01, 3e-4, 0.99
LOW, HIGH, BINS = -5.0, 5.0, 101
SMALL = ("agent=flash_sac", f"agent.batch_size={ROWS}", "agent.critic.hidden_dim=12", "agent.actor.hidden_dim=8")
Tensors = dict[str, torch.Tensor]
EXACT = {"rtol": 1e-8, "atol": 1e-10}


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def unit_lengths(weights: Tensors) -> Tensors:
    """What follows an optimizer's step. Weights are (..., in, out), a unit has a column; norms are (..., 1, width)."""
    restored = {name: weight.clone() for name, weight in weights.items()}
    for name, weight in weights.items():
        if name.endswith("weight"):
            restored[name] = weight / (weight**2).sum(-2, keepdim=True).sqrt()
        elif name.endswith("scale"):
            together = [n for n in (name, name.replace("scale", "shift")) if n in weights]
            length = sum((weights[n] ** 2).sum(-1, keepdim=True) for n in together) ** 0.5  # type: ignore[operator]
            for n in together:
                restored[n] = weights[n] * weight.shape[-1] ** 0.5 / length
    return restored


class Network:
    """Batch norm, linear, two blocks, RMS norm, linear, of one network; its weights can be differentiated in.

    Open in the words: that the first and the last linear layer have a bias, the RMS norm's eps, and that variances in
    the running statistics are those of the batch, biased.
    """

    def __init__(self, weights: Tensors, running: Tensors):
        self.weights, self.running = weights, running
        self.seen: Tensors = {}  # of the newest batch in training mode

    def norm(self, name: str, x: torch.Tensor, training: bool) -> torch.Tensor:
        mean, var = self.running[f"{name}.running_mean"][0], self.running[f"{name}.running_var"][0]
        if training:
            mean = x.sum(0) / len(x)
            var = ((x - mean) ** 2).sum(0) / len(x)
            self.seen |= {f"{name}.running_mean": mean.detach()[None], f"{name}.running_var": var.detach()[None]}
        z = (x - mean) / torch.sqrt(var + 1e-5)
        return z * self.weights[f"{name}.scale"][0] + self.weights[f"{name}.shift"][0]

    def __call__(self, x: torch.Tensor, training: bool) -> torch.Tensor:
        w = self.weights
        x = self.norm("0", x, training) @ w["1.weight"] + w["1.bias"]
        for block in ("2", "3"):
            h = torch.relu(self.norm(f"{block}.up_norm", x @ w[f"{block}.up.weight"], training))
            x = x + torch.relu(self.norm(f"{block}.down_norm", h @ w[f"{block}.down.weight"], training))
        x = x / torch.sqrt((x**2).sum(1, keepdim=True) / x.shape[1] + 1e-6) * w["4.scale"][0]
        return x @ w["5.weight"] + w["5.bias"]

    def followed(self) -> Tensors:
        """The running statistics after the batch."""
        return {name: KEPT * old + (1 - KEPT) * self.seen[name] for name, old in self.running.items()}


def constants(tensors: Any) -> Tensors:
    return {name: tensor.detach().clone() for name, tensor in tensors if "num_steps" not in name}


def differentiable(weights: Tensors) -> Tensors:
    return {name: weight.clone().requires_grad_() for name, weight in weights.items()}


def members(weights: Tensors, running: Tensors) -> list[Network]:
    """The two critics of an ensemble, whose tensors have them side by side."""
    return [Network(*({name: t[i] for name, t in part.items()} for part in (weights, running))) for i in (0, 1)]


def adams_first_step(weights: Tensors, loss: torch.Tensor) -> Tensors:
    """Bias-corrected, the moments are g and g^2."""
    gradients = torch.autograd.grad(loss, list(weights.values()))
    return {n: w.detach() - LR * g / (g.abs() + 1e-8) for (n, w), g in zip(weights.items(), gradients, strict=True)}


def policy(out: torch.Tensor, eps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """tanh(u) and log pi, (B, |A|) and (B,)."""
    mu, s = out[:, :ACTION_DIM], out[:, ACTION_DIM:]
    std = torch.exp(-10 + 6 * (torch.tanh(s) + 1))  # its logarithm in [-10, 2]
    u = mu + std * eps
    density = torch.exp(-((u - mu) ** 2) / (2 * std**2)) / (std * math.sqrt(2 * math.pi)) / (1 - torch.tanh(u) ** 2)
    return torch.tanh(u), torch.log(density).sum(1)


def projected(shares: list[float], reward: float, factor: float, cost: float) -> list[float]:
    """Bins' probabilities, each moved to reward + factor (z - cost) and shared out between the two next to it."""
    width, found = (HIGH - LOW) / (BINS - 1), [0.0] * BINS
    for i, share in enumerate(shares):
        place = min(max(reward + factor * (LOW + i * width - cost), LOW), HIGH)
        for j in range(BINS):
            found[j] += share * max(0.0, 1 - abs(place - (LOW + j * width)) / width)
    return found


def stir(agent: Any) -> None:
    """Weights, targets and statistics as after some training, at unit length where that is promised."""
    with torch.no_grad():
        for module in (agent.actor, agent.critic, agent.critic_target):
            for name, buffer in module.named_buffers():
                if "running" in name:
                    buffer.uniform_(0.5, 1.5)
            moved = {name: p + 0.2 * torch.randn_like(p) for name, p in module.trunk.named_parameters()}
            for name, p in unit_lengths(moved).items():
                module.trunk.get_parameter(name).copy_(p)


@pytest.mark.parametrize("last", [1.0, 60.0], ids=["by the deviation", "by the largest return"])
def test_an_update_is_what_its_description_says(last: float) -> None:
    agent = make_agent(*SMALL)
    stir(agent)
    # Rewards of one environment before the update: the returns that they scale by
    returns, running, episode = [], 0.0, [(1.0, False), (-2.0, False), (0.5, False), (4.0, True)]
    for reward, ended in (*episode * 12, (last, False)):
        agent.reward_normaliser.observe(np.array([reward]), np.array([ended]), GAMMA)
        running = reward + GAMMA * running
        returns.append(running)
        running = 0.0 if ended else running
    spread = max(np.std(returns), max(np.abs(returns)) / 5)
    assert (spread == np.std(returns)) == (last == 1.0)

    batch = make_batch(ROWS)
    obs, action, _, next_obs, not_done = batch
    scaled = (batch.reward[:, 0] / spread).tolist()
    eps, more = torch.randn(ROWS, ACTION_DIM), torch.randn(ROWS, ACTION_DIM)
    actor = Network(*(constants(f()) for f in (agent.actor.trunk.named_parameters, agent.actor.trunk.named_buffers)))
    actor.weights = differentiable(actor.weights)
    weights = differentiable(constants(agent.critic.trunk.named_parameters()))
    running_of_critic = constants(agent.critic.trunk.named_buffers())
    slow_weights = constants(agent.critic_target.trunk.named_parameters())
    for tensors in (actor.running, running_of_critic):  # what a block's layers have in the place of biases
        for name in [name for name in tensors if name.endswith("bias")]:
            assert not tensors.pop(name).any()

    metrics, _ = agent.compute_update(batch, Given(eps, more))

    # Critics: all of 2B in training mode, the slow ones too; the actor at o' in evaluation mode
    alpha, centres = 0.01, torch.linspace(LOW, HIGH, BINS)
    with torch.no_grad():
        next_action, next_log_prob = policy(actor(next_obs, training=False), eps)
        joined = torch.cat([torch.cat([obs, action], 1), torch.cat([next_obs, next_action], 1)])
        slow = [torch.softmax(q(joined, True)[ROWS:], 1) for q in members(slow_weights, running_of_critic)]
        target = []
        for row in range(ROWS):
            careful = min((one[row] for one in slow), key=lambda shares: float(shares @ centres))
            cost = alpha * next_log_prob[row].item()
            target.append(projected(careful.tolist(), scaled[row], GAMMA * not_done[row].item(), cost))
    critics = members(weights, running_of_critic)
    log_shares = [torch.log_softmax(q(joined, True)[:ROWS], 1) for q in critics]
    critic_loss = sum(-(torch.tensor(target) * one).sum(1).mean() for one in log_shares)
    assert isinstance(critic_loss, torch.Tensor)
    stepped = unit_lengths(adams_first_step(weights, critic_loss))
    followed = [q.followed() for q in critics]
    followed_by_both = {name: torch.stack([one[name] for one in followed]) for name in running_of_critic}

    # Actor: both halves in training mode, the loss at o alone; critics after their step, in evaluation mode
    out = actor(torch.cat([obs, next_obs]), True)[:ROWS]
    new_action, log_prob = policy(out, more)
    pairs = torch.cat([obs, new_action], 1)
    values = [torch.softmax(q(pairs, False), 1) @ centres for q in members(stepped, followed_by_both)]
    actor_loss = (alpha * log_prob - torch.minimum(*values)).mean()
    actor_stepped = unit_lengths(adams_first_step(actor.weights, actor_loss))
    entropy_error = -log_prob.mean().item() - ACTION_DIM / 2 * math.log(2 * math.pi * math.e * 0.15**2)

    close = torch.testing.assert_close
    close(metrics["train_critic/loss"], critic_loss.detach(), **EXACT)
    close(metrics["train_actor/loss"], actor_loss.detach(), **EXACT)
    close(metrics["train_alpha/loss"].item(), alpha * entropy_error, rtol=0, atol=2e-5)  # -0.478 has three digits
    close(agent.alpha.item(), alpha * math.exp(-LR * np.sign(entropy_error)), rtol=1e-6, atol=0)
    close(constants(agent.critic.trunk.named_parameters()), stepped, **EXACT)
    close(constants(agent.actor.trunk.named_parameters()), actor_stepped, **EXACT)
    for trunk, expected in ((agent.critic.trunk, followed_by_both), (agent.actor.trunk, actor.followed())):
        for name, statistic in expected.items():
            close(trunk.get_buffer(name), statistic, **EXACT)
    moved = {name: old + TAU * (stepped[name] - old) for name, old in slow_weights.items()}
    close(constants(agent.critic_target.trunk.named_parameters()), moved, **EXACT)


def test_weights_start_at_unit_length() -> None:
    agent = make_agent(*SMALL)
    for trunk in (agent.actor.trunk, agent.critic.trunk):
        weights = constants(trunk.named_parameters())
        assert {name.rsplit(".", 1)[1] for name in weights} == {"weight", "bias", "scale", "shift"}
        torch.testing.assert_close(weights, unit_lengths(weights))


def test_the_actor_learns_at_every_second_update() -> None:
    agent, batch = make_agent(*SMALL), make_batch(ROWS)
    for learns in (True, False, True, False):
        before = constants(agent.actor.trunk.named_parameters())
        numbers = [torch.randn(ROWS, ACTION_DIM) for _ in range(2 if learns else 1)]
        agent.compute_update(batch, Given(*numbers))
        agent._set_num_updates(agent.num_updates + 1)
        after = constants(agent.actor.trunk.named_parameters())
        assert any(not torch.equal(before[name], after[name]) for name in before) == learns
