"""Convolutional encoders that an agent's networks share (DrQ, arXiv 2004.13649).

An encoder is built with `obs_shape`, (C, H, W), and maps images (B, C, H, W), uint8, to (B, feature_dim). Networks
share its part `convolutions`, whose output (B, convolutions.feature_dim) is an input of the encoder too. The critic's
loss trains them; the actor's encoder has them as constants, and its own head. A target critic has a copy of all.
"""

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.networks.layers import LayerNorm
from agent.networks.mlp import Linear
from settings.obs_spec import ObsSpec
from settings.types import Factory, PositiveInt

KERNEL = 3
ImageShape = tuple[PositiveInt, PositiveInt, PositiveInt]  # channels, height, width


class Convolutions(nn.Sequential):
    """3 x 3 convolutions with ReLUs, from images (B, C, H, W), uint8, to features (B, feature_dim), float32."""

    def __init__(self, obs_shape: tuple[int, ...], channels: int, strides: list[int]):
        height, width = obs_shape[1:]
        for stride in strides:
            height, width = (height - KERNEL) // stride + 1, (width - KERNEL) // stride + 1
        in_channels = [obs_shape[0], *[channels] * (len(strides) - 1)]
        super().__init__(*(nn.Conv2d(n, channels, KERNEL, s) for n, s in zip(in_channels, strides, strict=True)))
        for parameter in self.parameters():
            nn.init.orthogonal_(parameter, math.sqrt(2)) if parameter.dim() > 1 else nn.init.zeros_(parameter)
        self.feature_dim = channels * height * width

    def forward(self, images: Tensor) -> Tensor:
        first, *others = cast(list[nn.Conv2d], list(self))
        # Pixels are bytes / 255. Dividing the weights instead saves a pass over all images.
        x = F.conv2d(images.float(), first.weight * (1 / 255), first.bias, first.stride).relu_()
        for layer in others:
            x = layer(x).relu_()
        return x.flatten(1)


class Encoder(nn.Module):
    """Convolutions and a head of linear layer, LayerNorm and tanh: (B, C, H, W) -> (B, feature_dim), in [-1, 1].

    The defaults are DrQ's. The strides 2, 2, 2, 1 of MR.Q (arXiv 2501.16142) take a sixth of the time; 3, 2, 1, 1 half
    of that. There are as many convolutions, of `channels` filters each, as strides.
    """

    def __init__(
        self,
        obs_shape: ImageShape,
        channels: PositiveInt = 32,
        strides: list[PositiveInt] = [2, 1, 1, 1],  # noqa: B006  a default as the YAML has it
        feature_dim: PositiveInt = 50,
    ):
        super().__init__()
        self.feature_dim = feature_dim
        self.convolutions = Convolutions(tuple(obs_shape), channels, list(strides))
        self.linear = Linear(self.convolutions.feature_dim, feature_dim)
        self.norm = LayerNorm(feature_dim)

    def forward(self, obs: Tensor) -> Tensor:
        features = self.convolutions(obs) if obs.dim() > 2 else obs
        return torch.tanh(self.norm(self.linear(features)))


class FromNumbers(nn.Module):
    """Wraps an actor, a critic or a value network so that it sees `obs_dim` elements of the observation from `start` on
    (ObsSpec.groups). `shapes` are the network's other arguments."""

    def __init__(self, obs_dim: int, start: int, network: Factory, **shapes: int):
        super().__init__()
        self.numbers: slice | None = slice(start, start + obs_dim)
        self.network = network(obs_dim=obs_dim, **shapes)

    def inputs(self, obs: Tensor) -> Tensor:
        """Returns what the network sees, (B, its obs_dim)."""
        return obs[:, self.numbers]

    def forward(self, obs: Tensor, *action: Tensor) -> Any:
        return self.network(self.inputs(obs), *action)

    def outputs(self, obs: Tensor, *action: Tensor) -> Tensor:
        return self.network.outputs(self.inputs(obs), *action)

    @property
    def head(self) -> Any:  # a critic's
        return self.network.head

    @property
    def acts_alone(self) -> bool:  # an actor's
        return self.network.acts_alone

    @property
    def noise_dim(self) -> int:
        return self.network.noise_dim


class FromImages(FromNumbers):
    """Wraps a network for vectors behind an encoder, with the vector elements beside the images that it sees.

    Its input is images, images and vectors packed as bytes (ObsSpec), or features: the output of the convolutions,
    then the vectors. `start` and `num_numbers` choose among these; None if observations are images alone.
    """

    def __init__(
        self,
        obs_shape: Any,
        encoder: Factory,
        network: Factory,
        start: int = 0,
        num_numbers: int | None = None,
        **shapes: int,
    ):
        nn.Module.__init__(self)
        self.obs_spec = ObsSpec.of_shape(tuple(obs_shape))
        self.numbers = None if num_numbers is None else slice(start, start + num_numbers)
        self.encoder = encoder(obs_shape=tuple(obs_shape))
        self.network = network(obs_dim=self.encoder.feature_dim + (num_numbers or 0), **shapes)

    def inputs(self, obs: Tensor) -> Tensor:
        if self.numbers is None:
            return self.encoder(obs)
        if obs.dtype == torch.uint8:
            images, vectors = self.obs_spec.unpack(obs, torch.float32)
        else:
            images, vectors = obs.tensor_split([self.encoder.convolutions.feature_dim], dim=1)
        return torch.cat([self.encoder(images), vectors[:, self.numbers]], dim=1)
