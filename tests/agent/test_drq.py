"""DrQ's encoder, augmentation and update against an independent computation in float64."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from agents import (
    ACTION_DIM,
    FROM_IMAGES,
    IMAGE,
    SMALL,
    TINY,
    Given,
    make_agent,
    make_batch,
)

from agent.augmentation import RandomShift
from agent.networks import Encoder
from agent.toolkit.adam import Adam
from agent.toolkit.copies import is_view
from utils import UserError

DRQ = ("agent=drq", *SMALL, *TINY)
STRIDES, PAD, BATCH = (2, 1), 2, 24
Weights = list[torch.Tensor]


def mlp64(weights: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    for i in range(0, len(weights), 2):
        x = x @ weights[i] + weights[i + 1]
        if i < len(weights) - 2:
            x = torch.maximum(x, torch.zeros_like(x))
    return x


def double(module: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().double().requires_grad_() for parameter in module.parameters()]


def q64(weights: list[torch.Tensor], obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Returns both critics' values (2, B)."""
    return torch.stack([mlp64([w[i] for w in weights], torch.cat([obs, action], 1)) for i in (0, 1)])[:, :, 0]


def relative(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """Returns the norm of the difference between two lists of tensors, relative to the norm of the second."""
    a, b = (torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors]) for tensors in (ours, theirs))
    return ((a - b).norm() / b.norm()).item()


def convolved64(weights: Weights, images: torch.Tensor) -> torch.Tensor:
    """(B, C, H, W) -> features; computes each convolution pixel by pixel from its definition."""
    x = images.double() / 255
    for weight, bias, stride in zip(weights[0::2], weights[1::2], STRIDES, strict=True):
        height, width = ((size - 3) // stride + 1 for size in x.shape[2:])
        rows = []
        for i in range(height):
            patches = [x[:, :, i * stride : i * stride + 3, j * stride : j * stride + 3] for j in range(width)]
            rows.append(torch.stack([torch.einsum("bchw,fchw->bf", patch, weight) + bias for patch in patches], -1))
        x = torch.stack(rows, 2).clamp(min=0)
    return x.reshape(len(x), -1)


def encoded64(weights: Weights, images: torch.Tensor) -> torch.Tensor:
    linear, bias, scale, shift = weights[4:8]
    x = convolved64(weights[:4], images) @ linear + bias
    centred = x - x.mean(1, keepdim=True)
    return torch.tanh(centred / torch.sqrt(centred.square().mean(1, keepdim=True) + 1e-5) * scale + shift)


def policy64(weights: Weights, features: torch.Tensor, eps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An action and its log-density, from the textbook."""
    mu, s = mlp64(weights, features).chunk(2, 1)
    std = torch.exp(-10 + 6 * (torch.tanh(s) + 1))
    action = torch.tanh(mu + std * eps)
    log_prob = torch.distributions.Normal(mu, std).log_prob(mu + std * eps) - torch.log(1 - action**2)
    return action, log_prob.sum(1)


def shifted64(images: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """All views, cropped one by one from images that torch pads."""
    padded = F.pad(images.double(), (PAD, PAD, PAD, PAD), mode="replicate")
    views = []
    for view in range(uniform.shape[1]):
        for row in range(len(images)):
            top, left = (math.floor(5 * number) for number in uniform[:, view, row].tolist())
            views.append(padded[row, :, top : top + IMAGE[1], left : left + IMAGE[2]])
    return torch.stack(views)


def test_an_encoder_is_what_is_written_down_and_starts_as_it_says() -> None:
    encoder = Encoder(IMAGE, channels=4, strides=list(STRIDES), feature_dim=8)
    images = make_batch(5, images=True).obs
    weights = double(encoder)
    for layout in (torch.contiguous_format, torch.channels_last):
        found = encoder(images.contiguous(memory_format=layout))
        assert found.shape == (5, 8) and relative([found], [encoded64(weights, images)]) < 1e-6
    assert torch.equal(encoder(encoder.convolutions(images)), encoder(images))
    flat = weights[2].detach().flatten(1)  # (4, 36): its rows are orthogonal, of length sqrt(2)
    torch.testing.assert_close(flat @ flat.T, 2 * torch.eye(4, dtype=torch.float64), atol=1e-5, rtol=0)
    assert not weights[1].any()
    assert Encoder((9, 84, 84)).convolutions.feature_dim == 32 * 35 * 35


def test_shifts_repeat_the_border_and_move_a_whole_stack_alike() -> None:
    images, uniform = make_batch(BATCH, images=True).obs, torch.rand(2, 3, BATCH)
    for kind in (torch.uint8, torch.float32):
        found = RandomShift(PAD, num_views=3)(images.to(kind), uniform)
        assert found.dtype == kind and torch.equal(found.double(), shifted64(images, uniform))
    assert torch.equal(RandomShift(0, 1)(images, uniform[:, :1]), images)


def test_an_update_equals_the_formulas_in_float64() -> None:
    agent, batch = make_agent(*DRQ), make_batch(BATCH, images=True)
    with torch.no_grad():  # a fresh target equals the critic; make them differ
        for parameter in agent.critic_target.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    shifts, eps = torch.rand(2, 2, 2, BATCH), torch.randn(3 * BATCH, ACTION_DIM)
    actor, critic, target = (double(agent.modules[name]) for name in ("actor", "critic", "critic_target"))
    action, reward, _, discount = (tensor.double() for tensor in batch[1:])

    metrics, _ = agent.compute_update(batch, Given(shifts[0], shifts[1], eps[: 2 * BATCH], eps[2 * BATCH :]))

    obs, next_obs = shifted64(batch.obs, shifts[0]), shifted64(batch.next_obs, shifts[1])
    with torch.no_grad():  # the target: the mean over both views of next_obs, each with its own action
        next_action, next_log_prob = policy64(actor[8:], encoded64(actor, next_obs), eps[: 2 * BATCH].double())
        next_q = q64(target[8:], encoded64(target, next_obs), next_action).min(0).values
        value = (next_q - 0.1 * next_log_prob).view(2, BATCH).mean(0)
        y = reward[:, 0] + 0.99 * discount[:, 0] * value
    per_view = [q64(critic[8:], encoded64(critic, view), action) for view in obs.chunk(2)]
    loss = sum(((q - y) ** 2).mean(1).sum() for q in per_view)  # over both views of obs
    assert isinstance(loss, torch.Tensor)
    gradients = torch.autograd.grad(loss, critic)
    assert relative([metrics["train_critic/loss"]], [loss.detach()]) < 1e-5
    assert relative([p.grad for p in agent.critic.parameters()], list(gradients)) < 1e-5
    lr = agent.optimizers["critic"].lr.item()
    first_step = [w.detach() - lr * g / (g.abs() + 1e-8) for w, g in zip(critic, gradients, strict=True)]  # Adam's
    assert relative(list(agent.critic.parameters()), first_step) < 1e-4

    # The actor sees the first view, through the convolutions that the critic's step has just changed.
    stepped = double(agent.critic)
    actor = [w.detach().requires_grad_() for w in (*stepped[:4], *actor[4:])]
    features = encoded64(actor, obs[:BATCH])
    new_action, log_prob = policy64(actor[8:], features, eps[2 * BATCH :].double())
    q = q64(stepped[8:], encoded64(stepped, obs[:BATCH]), new_action).min(0).values
    loss = (0.1 * log_prob - q).mean()
    gradients = torch.autograd.grad(loss, actor[4:])
    learned = [p for p in agent.actor.parameters() if p.requires_grad]
    assert relative([metrics["train_actor/loss"]], [loss.detach()]) < 1e-5
    assert relative([p.grad for p in learned], list(gradients)) < 1e-5

    moved = [t.detach() + 0.01 * (p - t).detach() for t, p in zip(target, stepped, strict=True)]
    assert relative(list(agent.critic_target.parameters()), moved) < 1e-6  # its convolutions too


@pytest.mark.parametrize("name", ["drq", "crossq", "td3"])
def test_the_actors_loss_has_no_gradient_in_the_convolutions(name: str) -> None:
    agent = make_agent(f"agent={name}", *SMALL, *(TINY if name == "drq" else FROM_IMAGES))
    ours, shared = agent.critic.encoder.convolutions, agent.actor.encoder.convolutions
    assert not is_view(ours) and is_view(shared)
    for a, b in zip(ours.parameters(), shared.parameters(), strict=True):
        assert a.data_ptr() == b.data_ptr() and a.requires_grad and not b.requires_grad
    images = torch.cat([make_batch(8, images=True).obs] * 2)
    obs = agent.observations.first_view(images)
    assert not obs.requires_grad
    before, head = copy.deepcopy(ours.state_dict()), agent.actor.encoder.linear.weight.clone()
    if name == "td3":
        agent.step_optimizers(actor=-agent.frozen_critic(obs, agent.actor(obs).action)[0].mean())
    else:
        agent.update_actor_and_temperature(images, Given(torch.randn(8, ACTION_DIM)), agent.alpha)
    assert all(parameter.grad is None for parameter in (*ours.parameters(), *shared.parameters()))
    assert all(torch.equal(before[key], value) for key, value in ours.state_dict().items())
    assert not torch.equal(head, agent.actor.encoder.linear.weight)  # the actor trains its own linear layer


def test_parts_that_do_not_fit_images_are_one_line() -> None:
    with pytest.raises(UserError, match=r"agent\.encoder=null"):
        make_agent(*SMALL, images=True)
    with pytest.raises(UserError, match="agent/observation_normaliser must be none"):
        make_agent(*SMALL, *FROM_IMAGES, "agent/observation_normaliser=running")


def test_a_gradient_may_lie_in_memory_in_another_order_than_its_parameter() -> None:
    start, gradient = torch.randn(4, 3, 2, 2), torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    ours.grad, theirs.grad = gradient, gradient.contiguous()
    Adam([ours], 1e-2, (0.8, 0.99)).step()
    torch.optim.Adam([theirs], 1e-2, (0.8, 0.99)).step()
    torch.testing.assert_close(ours, theirs)
