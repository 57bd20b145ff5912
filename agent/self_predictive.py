"""Critics and an actor on features that predict what follows: a model learns latents from which the next latent and the
reward are linear. MR.Q (arXiv 2501.16142) with DR.Q's losses (github.com/dmksjfl/DR.Q), for rows of n steps."""

from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.api import (
    Batch,
    Factory,
    LearningRate,
    Noise,
    NonNegativeFloat,
    OffPolicyAgent,
    PositiveInt,
    SoftUpdate,
    StepResult,
    UserError,
    frozen_view,
    losses,
)
from agent.networks.encoder import FromNumbers
from agent.networks.mlp import Linear, Shape

REWARD_BINS, REWARD_BOUNDS = 65, (-10.0, 10.0)  # of sign(r) log(1 + |r|)
CONTRAST_TEMPERATURE = 0.1


class NormedELU(nn.Sequential):
    """Linear layers, and after each but the last a layer normalisation without parameters and an ELU."""

    def __init__(self, shape: Shape):
        widths = [shape.in_dim] + [shape.hidden_dim] * shape.hidden_depth
        hidden = [Linear(*pair, shape.num_members, shape.init) for pair in pairwise(widths)]
        super().__init__(*hidden, shape.make_last_linear(widths[-1]))

    def forward(self, *inputs: Tensor) -> Tensor:
        x = torch.cat(inputs, dim=-1)
        *hidden, last = self
        for layer in hidden:
            x = normed_elu(layer(x))
        return last(x)


def normed_elu(x: Tensor) -> Tensor:
    return F.elu(F.layer_norm(x, x.shape[-1:]), inplace=True)


class StateEncoder(nn.Module):
    """Maps observations (B, obs_dim) to latents (B, latent_dim)."""

    def __init__(self, obs_dim: int, latent_dim: int, hidden_dim: int):
        super().__init__()
        self.network = NormedELU(Shape(obs_dim, hidden_dim, latent_dim, hidden_depth=2, init="xavier"))

    def forward(self, obs: Tensor) -> Tensor:
        return normed_elu(self.network(obs))


class StateActionEncoder(nn.Module):
    """Maps latents of observations (B, latent_dim) and actions (B, |A|) to latents of both (B, latent_dim)."""

    def __init__(self, action_dim: int, latent_dim: int, hidden_dim: int):
        super().__init__()
        widths = latent_dim + latent_dim // 2, hidden_dim, latent_dim
        self.action = Linear(action_dim, latent_dim // 2, init="xavier")
        self.network = NormedELU(Shape(*widths, hidden_depth=2, init="xavier"))

    def forward(self, latent: Tensor, action: Tensor) -> Tensor:
        return self.network(latent, F.elu(self.action(action)))


class LatentModel(nn.Module):
    """Both encoders, and a linear layer to the next observation's latent and the reward's logits."""

    def __init__(self, obs_dim: int, action_dim: int, latent_dim: int, hidden_dim: int):
        super().__init__()
        self.state = StateEncoder(obs_dim, latent_dim, hidden_dim)
        self.state_action = StateActionEncoder(action_dim, latent_dim, hidden_dim)
        self.prediction = Linear(latent_dim, latent_dim + REWARD_BINS, init="xavier")

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the predicted next latents (B, latent_dim) and logits (B, REWARD_BINS)."""
        prediction = self.prediction(self.state_action(self.state(obs), action))
        return prediction[:, :-REWARD_BINS], prediction[:, -REWARD_BINS:]


class LatentActor(FromNumbers):
    """Wraps an actor so that it sees a constant encoder's latents of observations."""

    def __init__(self, obs_dim: int, action_dim: int, network: Factory, latent_dim: int, hidden_dim: int):
        super().__init__(latent_dim, 0, network, action_dim=action_dim)
        self.encoder = StateEncoder(obs_dim, latent_dim, hidden_dim).requires_grad_(False)

    def inputs(self, obs: Tensor) -> Tensor:
        return self.encoder(obs)


class LatentCritic(FromNumbers):
    """Wraps critics so that they see a constant encoder's latents of observations' latents and actions."""

    def __init__(self, obs_dim: int, action_dim: int, network: Factory, latent_dim: int, hidden_dim: int):
        super().__init__(latent_dim, 0, network, action_dim=0)
        self.encoder = StateActionEncoder(action_dim, latent_dim, hidden_dim).requires_grad_(False)

    def forward(self, latent: Tensor, action: Tensor) -> Tensor:  # type: ignore[override]
        return self.head.values(self.outputs(latent, action))

    def outputs(self, latent: Tensor, action: Tensor) -> Tensor:  # type: ignore[override]
        return self.network.trunk(self.encoder(latent, action))


class SelfPredictiveAgent(OffPolicyAgent):
    """TD3's critics and actor on a model's latents; config/agent/self_predictive.yaml has the keys.

    Every `target_update_frequency` updates the targets become copies of critics and actor, and then these get the
    model's newest encoders, which they read as constants, as in TD7 (arXiv 2306.02451).
    """

    def __init__(
        self,
        critic: Factory,
        actor: Factory,
        latent_dim: PositiveInt = 128,
        model_hidden_dim: PositiveInt = 192,
        model_lr: LearningRate = 3e-4,
        model_weight_decay: NonNegativeFloat = 0.01,
        reward_weight: NonNegativeFloat = 0.1,
        contrast_weight: NonNegativeFloat = 0.1,
        actor_lr: LearningRate = 3e-4,
        critic_lr: LearningRate = 3e-4,
        target_update_frequency: PositiveInt = 250,
        target_noise_std: NonNegativeFloat = 0.2,
        target_noise_clip: NonNegativeFloat = 0.3,
        **off_policy: Any,
    ):
        super().__init__(**off_policy)
        if self.observations.spec.image or self.observations.spec.groups:
            raise UserError("agent=self_predictive: observations have to be vectors, without obs_groups")
        self.reward_weight, self.contrast_weight = reward_weight, contrast_weight
        self.target_update_frequency = target_update_frequency
        self.target_noise_std, self.target_noise_clip = target_noise_std, target_noise_clip
        sizes = {"latent_dim": latent_dim, "hidden_dim": model_hidden_dim}
        self.actor = self.build(partial(LatentActor, network=actor, **sizes))
        self.critic = self.build(partial(LatentCritic, network=critic, **sizes))
        self.model = self.build(partial(LatentModel, **sizes))
        self.refuse_batch_norm()
        pairs = (self.model.state, self.actor.encoder), (self.model.state_action, self.critic.encoder)
        self.encoder_copies = [SoftUpdate(*pair) for pair in pairs]
        self.copy_encoders()
        self.actor_target, self.critic_target = self.slow_copy(self.actor), self.slow_copy(self.critic)
        self.frozen_critic = frozen_view(self.critic)
        self.add_optimizer("actor", self.actor, actor_lr, weight_decay=self.actor_weight_decay)
        self.add_optimizer("critic", self.critic, critic_lr, weight_decay=self.critic_weight_decay)
        self.add_optimizer("model", self.model, model_lr, weight_decay=model_weight_decay)

    def copy_encoders(self) -> None:
        for make_copy in self.encoder_copies:
            make_copy(1.0)

    def update_step(self, batch: Batch, noise: Noise) -> StepResult:
        """Steps the critics, then the model and the actor."""
        if self.due(self.target_update_frequency):
            self.move_slow_copies(1.0)  # with the older encoders
            self.copy_encoders()
        clip = self.target_noise_clip
        with torch.no_grad():
            latent, next_latent = self.actor.encoder(torch.cat([batch.obs, batch.next_obs])).chunk(2)
            target_latent = self.actor_target.encoder(batch.next_obs)
            smoothing = (self.target_noise_std * noise.normal(*batch.action.shape)).clamp(-clip, clip)
            next_action = (self.actor_target.network(target_latent).action + smoothing).clamp(*self.action_range)
            next_outputs = self.critic_target.outputs(target_latent, next_action)
            target = self.critic.head.target(batch.reward, batch.discount, self.schedules.discount, next_outputs)
        metrics, outputs = self.step_critic(batch, self.critic.outputs(latent, batch.action), target)
        model_losses = self.model_losses(batch, next_latent)
        actor_loss = -self.frozen_critic(latent, self.actor.network(latent).action).mean()
        self.step_optimizers(model=torch.stack([*model_losses.values()]).sum(), actor=actor_loss)
        metrics |= {f"train_model/{name}_loss": loss.detach() for name, loss in model_losses.items()}
        return metrics | {"train_actor/loss": actor_loss.detach()}, outputs

    def model_losses(self, batch: Batch, next_latent: Tensor) -> dict[str, Tensor]:
        """Returns the model's weighted losses by name: the squared error of the next latent, the cross-entropy of the
        reward's two neighbouring bins, and InfoNCE: is a prediction nearest to its own next latent in the batch?"""
        predicted, logits = self.model(batch.obs, batch.action)
        symlog = (batch.reward.sign() * batch.reward.abs().log1p()).expand_as(logits)
        two_hot = losses.project_to_bins(torch.full_like(symlog, 1 / REWARD_BINS), symlog, REWARD_BOUNDS)
        similarity = F.normalize(predicted, dim=-1) @ F.normalize(next_latent, dim=-1).T / CONTRAST_TEMPERATURE
        labels = torch.arange(len(predicted), device=self.device)
        return {
            "dynamics": F.mse_loss(predicted, next_latent),
            "reward": self.reward_weight * losses.cross_entropy(logits, two_hot),
            "contrast": self.contrast_weight * F.cross_entropy(similarity, labels),
        }
