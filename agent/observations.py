"""What an agent's networks are given: vectors as they are, or images through an encoder, in views for an update.

An algorithm asks for what it needs and does not know which of the two it has. With vectors nothing is computed here.
"""

from functools import partial
from typing import Annotated, Any

import torch

from agent.networks.encoder import EncoderFactory, FromImages, ImageShape
from agent.toolkit.frozen import frozen_view
from agent.toolkit.noise import Noise
from replay_buffer import Batch, WeightedBatch
from settings.types import Factory, Part
from utils import UserError

AugmentationFactory = Annotated[Factory, Part("an augmentation of images", (), ("__call__",))]
SHOWN = 4  # rows of a batch, for a person to look at


class Vectors:
    """Observations that networks take as they are.

    Args:
        obs_dim: their width.
    """

    num_views = 1

    def __init__(self, obs_dim: int):
        self.shapes: dict[str, Any] = {"obs_dim": obs_dim}

    def factory(self, network: Factory) -> Factory:
        """Of a network that takes these observations, called with `shapes`; from that of one that takes vectors."""
        return network

    def share(self, network: Any, learns_encoder: bool) -> None:
        """Joins a network that was built so with the others of its agent."""

    def views(self, batch: Batch, noise: Noise) -> Batch:
        """The rows that an update sees, (num_views * B)."""
        return batch

    def features(self, obs: torch.Tensor) -> torch.Tensor:
        """What networks may be given instead of observations, so that no work is done twice: constants."""
        return obs

    def first_view(self, obs: torch.Tensor, ends: int = 1) -> torch.Tensor:
        """`features` of one view of each observation, (ends * B, ...).

        Args:
            ends: whether the rows are those of one end of the transitions, or of both, one after the other.
        """
        return obs

    def mean_of_views(self, target: torch.Tensor) -> torch.Tensor:
        """Targets (num_views * B, ...), each the mean over the views of its transition."""
        return target

    def shown(self, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        """What of the observations (num_views * B, ...) an update shows a person."""
        return {}


class Images(Vectors):
    """Images, uint8, with convolutions that the networks share; one network's loss trains them.

    Args:
        encoder: factory of the encoders (agent.networks.encoder).
        augmentation: factory of what makes views (agent.augmentation); None is the images as they are.
        obs_shape: (C, H, W).
        device: of the networks.
    """

    def __init__(
        self,
        encoder: EncoderFactory,
        augmentation: AugmentationFactory | None,
        obs_shape: ImageShape,
        device: torch.device,
    ):
        self.shapes = {"obs_shape": obs_shape}
        self._encoder = encoder
        self._augment = None if augmentation is None else augmentation()
        self.num_views = 1 if self._augment is None else self._augment.num_views
        self._learned = encoder(obs_shape=obs_shape).to(device).convolutions
        self._constant = frozen_view(self._learned)

    def factory(self, network: Factory) -> Factory:
        return partial(FromImages, encoder=self._encoder, network=network)

    def share(self, network: Any, learns_encoder: bool) -> None:
        network.encoder.convolutions = self._learned if learns_encoder else frozen_view(self._learned)

    def views(self, batch: Batch, noise: Noise) -> Batch:
        if self._augment is None:
            return batch
        count, rows = self.num_views, len(batch.obs)
        obs, next_obs = (self._augment(images, noise.uniform(2, count, rows)) for images in (batch.obs, batch.next_obs))
        action, reward, discount = (tensor.repeat(count, 1) for tensor in (batch.action, batch.reward, batch.discount))
        seen = batch._replace(obs=obs, action=action, reward=reward, next_obs=next_obs, discount=discount)
        return seen._replace(weight=seen.weight.repeat(count)) if isinstance(seen, WeightedBatch) else seen

    def features(self, obs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self._constant(obs)

    def first_view(self, obs: torch.Tensor, ends: int = 1) -> torch.Tensor:
        return self.features(obs.unflatten(0, (ends, self.num_views, -1))[:, 0].flatten(0, 1))

    def mean_of_views(self, target: torch.Tensor) -> torch.Tensor:
        if self.num_views == 1:
            return target
        mean = target.unflatten(0, (self.num_views, -1)).mean(0)
        return mean.repeat(self.num_views, 1)

    def shown(self, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        """`images`, (SHOWN, num_views, C, H, W), uint8."""
        return {"images": obs.unflatten(0, (self.num_views, -1))[:, :SHOWN].transpose(0, 1)}


def observations(
    obs_dim: int,
    obs_shape: ImageShape | None,
    device: torch.device,
    encoder: EncoderFactory | None,
    augmentation: AugmentationFactory | None,
    normalised: bool,
) -> Vectors:
    """What an agent has, of its arguments.

    Args:
        normalised: whether a normaliser of observations is asked for.

    Raises:
        UserError: for images without an encoder, or parts for images where there are vectors.
    """
    if obs_shape is None:
        for key, part in (("encoder", encoder), ("augmentation", augmentation)):
            if part is not None:
                raise UserError(
                    f"agent.{key}: it is for images, and this environment gives vectors; from_pixels=true renders it"
                )
        return Vectors(obs_dim)
    if encoder is None:
        raise UserError(
            f"agent.encoder=null: the observations are images {tuple(obs_shape)}; choose agent=drq, or add "
            "agent/encoder=convolutions agent/augmentation=shift"
        )
    if normalised:
        raise UserError("agent.observation_normaliser: it is for vectors, and these are images; choose none")
    return Images(encoder, augmentation, obs_shape, device)
