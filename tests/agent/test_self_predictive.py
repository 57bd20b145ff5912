"""The updates of agent=self_predictive, written out from its papers, in float64."""

from functools import partial
from typing import Any

import formulas
import pytest
import torch
from agents import make_agent
from formulas import Tensors, batches, update

from replay_buffer import Batch

SMALL = ("latent_dim=10", "model_hidden_dim=9", "critic.hidden_dim=8", "actor.hidden_dim=7", "batch_size=16")
RENEWED = 15  # updates between copies


def elu(x: torch.Tensor) -> torch.Tensor:
    """ELU of a layer normalisation without parameters."""
    centred = x - x.mean(-1, keepdim=True)
    z = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5)
    return torch.where(z > 0, z, torch.exp(z) - 1)


def linear(w: Tensors, name: str, x: torch.Tensor) -> torch.Tensor:
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]


def mlp(w: Tensors, name: str, depth: int, x: torch.Tensor) -> torch.Tensor:
    for layer in range(depth):
        x = elu(linear(w, f"{name}.{layer}", x))
    return linear(w, f"{name}.{depth}", x)


def state(w: Tensors, obs: torch.Tensor) -> torch.Tensor:
    return elu(mlp(w, "state.network", 2, obs))


def pair(w: Tensors, latent: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    x = linear(w, "state_action.action", action)
    return mlp(w, "state_action.network", 2, torch.cat([latent, torch.where(x > 0, x, torch.exp(x) - 1)], 1))


def copy(w: Tensors) -> Tensors:
    return {name: tensor.detach().clone() for name, tensor in w.items()}


class SelfPredictive:
    """The model, critics and actor (with the encoders as of the last copy), and their slow copies."""

    def __init__(self, agent: Any):
        modules = agent.model, agent.critic, agent.actor
        self.model, self.critic, self.actor = (
            {n: w.detach().clone().requires_grad_() for n, w in module.named_parameters() if w.requires_grad}
            for module in modules
        )
        self.encoder = copy(self.model)
        self.adams = [formulas.Adam(w, weight_decay=0.01) for w in (self.model, self.critic, self.actor)]
        self.count = 0

    def update(self, batch: Batch, eps: torch.Tensor) -> None:
        if self.count % RENEWED == 0:
            self.slow_encoder, self.slow_critic, self.slow_actor = map(copy, (self.encoder, self.critic, self.actor))
            self.encoder = copy(self.model)
        self.count += 1
        later = state(self.slow_encoder, batch.next_obs)
        next_action = torch.tanh(mlp(self.slow_actor, "network.trunk", 2, later)) + (0.2 * eps).clamp(-0.3, 0.3)
        next_q = mlp(self.slow_critic, "network.trunk", 3, pair(self.slow_encoder, later, next_action.clamp(-1, 1)))
        y = batch.reward + 0.99 * batch.discount * next_q.min(0).values
        latent = state(self.encoder, batch.obs)
        q = mlp(self.critic, "network.trunk", 3, pair(self.encoder, latent, batch.action))
        error = (q - y).abs()
        critic_loss = torch.where(error < 1, error**2 / 2, error - 0.5).mean(1).sum()
        model_adam, critic_adam, actor_adam = self.adams
        critic_adam.step(critic_loss, 3e-4)
        action = torch.tanh(mlp(self.actor, "network.trunk", 2, latent))
        actor_loss = -mlp(self.critic, "network.trunk", 3, pair(self.encoder, latent, action)).mean()
        model_adam.step(self.model_loss(batch), 3e-4)
        actor_adam.step(actor_loss, 3e-4)

    def model_loss(self, batch: Batch) -> torch.Tensor:
        next_latent = state(self.encoder, batch.next_obs)
        prediction = linear(self.model, "prediction", pair(self.model, state(self.model, batch.obs), batch.action))
        predicted, logits = prediction.split([10, 65], 1)
        centres = torch.linspace(-10, 10, 65)
        place = torch.sign(batch.reward) * torch.log(1 + batch.reward.abs())
        bins = (1 - (place - centres).abs() / (centres[1] - centres[0])).clamp(min=0)
        cosines = torch.cosine_similarity(predicted[:, None], next_latent, dim=2)
        contrast = -torch.log_softmax(cosines / 0.1, 1).diagonal().mean()
        reward = -(bins * torch.log_softmax(logits, 1)).sum(1).mean()
        return ((predicted - next_latent) ** 2).mean() + 0.1 * reward + 0.1 * contrast


@pytest.mark.usefixtures("float64")
def test_fifty_updates_are_those_of_the_formulas() -> None:
    keys = (*SMALL, f"target_update_frequency={RENEWED}")
    agent = make_agent("agent=self_predictive", *(f"agent.{key}" for key in keys))
    expected = SelfPredictive(agent)
    for batch, eps, _ in batches(50, 16):
        eps = 3 * eps  # so that the clip takes effect
        update(agent, batch, eps)
        expected.update(batch, eps)
    readers = {"state": "actor.encoder", "state_action": "critic.encoder"}
    parts = {"model": expected.model, "actor": expected.actor, "critic": expected.critic}
    right = {f"{part}.{name}": tensor for part, weights in parts.items() for name, tensor in weights.items()}
    for name, tensor in expected.encoder.items():
        encoder, _, rest = name.partition(".")
        right |= {f"{readers[encoder]}.{rest}": tensor} if encoder in readers else {}
    learnt = {f"{part}.{n}": tensor for part in parts for n, tensor in getattr(agent, part).named_parameters()}
    assert learnt.keys() == right.keys()
    for name, tensor in right.items():
        message = partial("{}: {}".format, name)
        torch.testing.assert_close(learnt[name], tensor, rtol=0, atol=1e-8, msg=message)
