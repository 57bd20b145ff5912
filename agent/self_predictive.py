"""TD3 on features that predict what follows: a model learns latents from which the next latent and the reward are linear,
and critics and actor read them. MR.Q (arXiv 2501.16142) with the losses of DR.Q, on rows of n steps."""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.api import Batch, Betas, Factory, LearningRate, Noise, NonNegativeFloat, PositiveInt, SoftUpdate
from agent.api import StepResult, UserError, losses
from agent.critic import CriticEnsemble
from agent.networks.mlp import Linear, Shape
from agent.td3 import DeterministicActor, NoisyAction, TD3Agent

REWARD_BINS, REWARD_BOUNDS = 65, (-10.0, 10.0)  # of sign(r) log(1 + |r|)
CONTRAST_TEMPERATURE = 0.1


class NormedELU(nn.Sequential):
    """Linear layers, and after each but the last a layer normalisation without parameters and an ELU."""

    def __init__(self, shape: Shape):
        widths = [shape.in_dim, *[shape.hidden_dim] * shape.hidden_depth, shape.out_dim]
        super().__init__(*(Linear(*pair, shape.num_members, shape.init) for pair in pairwise(widths)))

    def forward(self, *inputs: Tensor) -> Tensor:
        x = torch.cat(inputs, dim=-1)
        *hidden, last = self
        for layer in hidden:
            x = activate(layer(x))
        return last(x)


def activate(x: Tensor) -> Tensor:
    return F.elu(F.layer_norm(x, x.shape[-1:]), inplace=True)


def mlp(in_dim: int, hidden_dim: int, out_dim: int) -> NormedELU:
    return NormedELU(Shape(in_dim, hidden_dim, out_dim, hidden_depth=2, init="xavier"))


class StateEncoder(nn.Module):
    """Maps observations (B, obs_dim) to latents (B, latent_dim)."""

    def __init__(self, obs_dim: int, latent_dim: PositiveInt = 128, hidden_dim: PositiveInt = 192):
        super().__init__()
        self.network = mlp(obs_dim, hidden_dim, latent_dim)

    def forward(self, obs: Tensor) -> Tensor:
        return activate(self.network(obs))


class PairEncoder(nn.Module):
    """Maps latents of observations (B, latent_dim) and actions (B, |A|) to latents of the pairs (B, latent_dim)."""

    def __init__(self, action_dim: int, latent_dim: PositiveInt = 128, hidden_dim: PositiveInt = 192):
        super().__init__()
        self.action = Linear(action_dim, latent_dim // 2, init="xavier")
        self.network = mlp(latent_dim + latent_dim // 2, hidden_dim, latent_dim)

    def forward(self, latent: Tensor, action: Tensor) -> Tensor:
        return self.network(latent, F.elu(self.action(action)))


class Model(nn.Module):
    """Both encoders, and a linear layer from a pair's latent to the next observation's latent and the reward's logits."""

    def __init__(
        self, obs_dim: PositiveInt, action_dim: PositiveInt, latent_dim: PositiveInt = 128, hidden_dim: PositiveInt = 192
    ):
        super().__init__()
        self.state, self.pair = StateEncoder(obs_dim, latent_dim, hidden_dim), PairEncoder(action_dim, latent_dim, hidden_dim)
        self.prediction = Linear(latent_dim, latent_dim + REWARD_BINS, init="xavier")

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the predicted next latents (B, latent_dim) and logits (B, REWARD_BINS)."""
        prediction = self.prediction(self.pair(self.state(obs), action))
        return prediction[:, :-REWARD_BINS], prediction[:, -REWARD_BINS:]


class LatentCritic(CriticEnsemble):
    """A CriticEnsemble on latents of pairs, from a constant encoder; `critic` are its arguments."""

    def __init__(self, obs_dim: int, action_dim: int, latent_dim: PositiveInt, model_dim: PositiveInt, **critic: Any):
        super().__init__(obs_dim=latent_dim, action_dim=0, **critic)
        self.pair = PairEncoder(action_dim, latent_dim, model_dim).requires_grad_(False)

    def forward(self, latent: Tensor, action: Tensor) -> Tensor:
        return self.head.values(self.outputs(latent, action))

    def outputs(self, latent: Tensor, action: Tensor) -> Tensor:
        return self.trunk(self.pair(latent, action))


class LatentActor(DeterministicActor):
    """A DeterministicActor on latents of observations, from a constant encoder; `actor` are its arguments."""

    def __init__(self, obs_dim: int, action_dim: int, latent_dim: PositiveInt, model_dim: PositiveInt, **actor: Any):
        super().__init__(obs_dim=latent_dim, action_dim=action_dim, **actor)
        self.encoder = StateEncoder(obs_dim, latent_dim, model_dim).requires_grad_(False)

    def forward(self, obs: Tensor) -> NoisyAction:
        return self.on_latent(self.encoder(obs))

    def on_latent(self, latent: Tensor) -> NoisyAction:
        return super().forward(latent)


class SelfPredictiveAgent(TD3Agent):
    """TD3 on a model's latents. Every `target_update_frequency` updates the targets become copies of critics and actor,
    and then these get the model's newest encoders, which they read as constants, as in TD7 (arXiv 2306.02451)."""

    def __init__(
        self,
        model: Factory,
        model_lr: LearningRate = 3e-4,
        model_betas: Betas = (0.9, 0.999),
        model_weight_decay: NonNegativeFloat = 0.01,
        reward_weight: NonNegativeFloat = 0.1,
        contrast_weight: NonNegativeFloat = 0.1,
        target_update_frequency: PositiveInt = 250,
        **td3: Any,
    ):
        super().__init__(**td3)
        if self.observations.spec.image or self.observations.spec.groups:
            raise UserError("agent=self_predictive: observations have to be vectors, without obs_groups")
        self.reward_weight, self.contrast_weight = reward_weight, contrast_weight
        self.target_update_frequency = target_update_frequency
        self.model = self.build(model)
        self.add_optimizer("model", self.model, model_lr, model_betas, model_weight_decay)
        encoders = SoftUpdate(self.model.state, self.actor.encoder), SoftUpdate(self.model.pair, self.critic.pair)
        self.renewals = [*self.soft_updates, *encoders]
        for renewal in reversed(self.renewals):  # the encoders first, so that all begin alike
            renewal(1.0)

    def update_step(self, batch: Batch, noise: Noise) -> StepResult:
        """Steps the model, the critics and the actor."""
        if self.due(self.target_update_frequency):
            for renewal in self.renewals:
                renewal(1.0)
        with torch.no_grad():
            latent, next_latent = self.actor.encoder(torch.cat([batch.obs, batch.next_obs])).chunk(2)
            later = self.actor_target.encoder(batch.next_obs)
            target = self.target(batch, later, self.actor_target.on_latent(later).action, noise)
        metrics, outputs = self.step_critic(batch, self.critic.outputs(latent, batch.action), target)
        model_losses = self.model_losses(batch, next_latent)
        actor_loss = -self.frozen_critic(latent, self.actor.on_latent(latent).action).mean()
        self.step_optimizers(model=sum(model_losses.values()), actor=actor_loss)
        metrics |= {f"train_model/{name}_loss": loss.detach() for name, loss in model_losses.items()}
        return metrics | {"train_actor/loss": actor_loss.detach()}, outputs

    def model_losses(self, batch: Batch, next_latent: Tensor) -> dict[str, Tensor]:
        """Returns the model's losses by name: the squared error of the next latent, the cross-entropy of the reward in
        its two neighbouring bins, and InfoNCE, whether a prediction is nearer to its own next latent than to others."""
        predicted, logits = self.model(batch.obs, batch.action)
        place = (batch.reward.sign() * batch.reward.abs().log1p()).expand_as(logits)
        bins = losses.project_to_bins(torch.full_like(place, 1 / REWARD_BINS), place, REWARD_BOUNDS)
        similarity = F.normalize(predicted, dim=-1) @ F.normalize(next_latent, dim=-1).T / CONTRAST_TEMPERATURE
        own = torch.arange(len(predicted), device=self.device)
        return {
            "dynamics": F.mse_loss(predicted, next_latent),
            "reward": self.reward_weight * losses.cross_entropy(logits, bins),
            "contrast": self.contrast_weight * F.cross_entropy(similarity, own),
        }
