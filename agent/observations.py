"""Observations as networks take them: vectors, or images with an encoder and augmented views, alone or with vectors."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from agent.networks.encoder import FromImages, FromNumbers
from agent.toolkit.copies import frozen_view
from agent.toolkit.hooks import Noise
from replay_buffer import Batch, WeightedBatch
from settings.obs_spec import ObsSpec
from settings.types import Factory
from utils import UserError


class Vectors:
    """Observations that are vectors, for which most methods return their arguments."""

    num_views = 1
    learned: Any = None  # the convolutions that a loss has to train

    def __init__(self, spec: ObsSpec):
        self.spec = spec

    def factory(self, network: Factory, of_actor: bool) -> tuple[Factory, dict[str, Any]]:
        """Turns the factory of a network for vectors into one for the observation group of the actor or the critics.

        Returns:
            The factory, and the shapes to call it with.
        """
        start, stop = self.spec.seen(of_actor)
        if self.spec.groups:
            network = partial(FromNumbers, network=network, start=start)
        return network, {"obs_dim": stop - start}

    def share(self, network: Any, learns_encoder: bool) -> None:
        """Makes a network that was built by such a factory share its agent's convolutions."""

    def views(self, batch: Batch, noise: Noise) -> Batch:
        """Returns the batch with num_views * B rows: the augmented views of each transition."""
        return batch

    def features(self, obs: Tensor) -> Tensor:
        """Returns detached features, which networks accept instead of observations, so that convolutions run once."""
        return obs

    def first_view(self, obs: Tensor, ends: int = 1) -> Tensor:
        """Returns the `features` of the first view of each observation, (ends * B, ...)."""
        return obs

    def mean_of_views(self, target: Tensor) -> Tensor:
        """Replaces targets (num_views * B, ...) by their means over the views of each transition."""
        return target


class Images(Vectors):
    """Observations with images, uint8, and convolutions that the agent's networks share."""

    def __init__(self, encoder: Factory | None, augmentation: Factory | None, spec: ObsSpec, device: torch.device):
        if encoder is None:
            raise UserError("agent.encoder=null: observations are images; add agent/encoder=convolutions")
        super().__init__(spec)
        self._encoder = encoder
        self._augment: Any = augmentation and augmentation()
        self.num_views = self._augment.num_views if self._augment else 1
        self.learned = encoder(obs_shape=spec.image).to(device).convolutions
        self._constant = frozen_view(self.learned)

    def factory(self, network: Factory, of_actor: bool) -> tuple[Factory, dict[str, Any]]:
        start, stop = self.spec.seen(of_actor)
        numbers: dict[str, Any] = {"start": start, "num_numbers": stop - start} if self.spec.is_mixed else {}
        return partial(FromImages, encoder=self._encoder, network=network, **numbers), {"obs_shape": self.spec.image}

    def share(self, network: Any, learns_encoder: bool) -> None:
        network.encoder.convolutions = self.learned if learns_encoder else frozen_view(self.learned)

    def views(self, batch: Batch, noise: Noise) -> Batch:
        if self._augment is None:
            return batch
        count, rows = self.num_views, len(batch.obs)
        obs, next_obs = (self._views(o, noise.uniform(2, count, rows)) for o in (batch.obs, batch.next_obs))
        action, reward, discount = (tensor.repeat(count, 1) for tensor in (batch.action, batch.reward, batch.discount))
        views = batch._replace(obs=obs, action=action, reward=reward, next_obs=next_obs, discount=discount)
        return views._replace(weight=views.weight.repeat(count)) if isinstance(views, WeightedBatch) else views

    def _views(self, obs: Tensor, uniform: Tensor) -> Tensor:
        if not self.spec.is_mixed:
            return self._augment(obs, uniform)
        images, _ = self.spec.unpack(obs, torch.float32)
        views = self._augment(images, uniform).flatten(1)
        return torch.cat([views, obs[:, self.spec.image_bytes :].repeat(self.num_views, 1)], dim=1)

    def features(self, obs: Tensor) -> Tensor:
        with torch.no_grad():
            if not self.spec.is_mixed:
                return self._constant(obs)
            images, vectors = self.spec.unpack(obs, torch.float32)
            return torch.cat([self._constant(images), vectors], dim=1)

    def first_view(self, obs: Tensor, ends: int = 1) -> Tensor:
        return self.features(obs.unflatten(0, (ends, self.num_views, -1))[:, 0].flatten(0, 1))

    def mean_of_views(self, target: Tensor) -> Tensor:
        if self.num_views == 1:
            return target
        mean = target.unflatten(0, (self.num_views, -1)).mean(0)
        return mean.repeat(self.num_views, 1)
