"""Agents built from YAML without an environment, and arguments for their updates."""

from typing import Any

import composed
import torch
from hydra.utils import get_object

from agent.toolkit.hooks import Noise
from replay_buffer import Batch
from run.agents import EnvSpec, build_agent
from settings.obs_spec import ObsSpec

OBS_DIM, ACTION_DIM = 17, 6
IMAGE, STACK = (6, 12, 12), 2  # two frames of three channels
TINY = ("image_pad=2", "agent.encoder.channels=4", "agent.encoder.strides=[2,1]", "agent.encoder.feature_dim=8")
FROM_IMAGES = ("agent/encoder=convolutions", "agent/augmentation=shift", *TINY)
SMALL = ("agent.batch_size=32", "agent.critic.hidden_dim=16", "agent.actor.hidden_dim=16")


def make_agent(
    *overrides: str,
    obs_dim: int = OBS_DIM,
    action_dim: int = ACTION_DIM,
    device: str = "cpu",
    images: bool | None = None,
) -> Any:
    """Builds an agent; it observes images if it has an encoder, unless `images` says otherwise."""
    torch.manual_seed(0)
    cfg = composed.settings(*overrides)
    from_images = bool(cfg.agent["encoder"]) if images is None else images
    action = ((1,), action_dim) if get_object(cfg.agent["_target_"]).discrete_actions else ((action_dim,),)
    obs = ObsSpec.of_shape(IMAGE if from_images else (obs_dim,))
    return build_agent(cfg, EnvSpec(obs, *action), torch.device(device))


def make_batch(size: int, images: bool = False) -> Batch:
    random = torch.Generator().manual_seed(1)
    batch = Batch(
        obs=torch.randn(size, OBS_DIM, generator=random),
        action=torch.rand(size, ACTION_DIM, generator=random) * 2 - 1,
        reward=torch.randn(size, 1, generator=random),
        next_obs=torch.randn(size, OBS_DIM, generator=random),
        discount=(torch.rand(size, 1, generator=random) > 0.2).float(),
    )
    if not images:
        return batch
    obs, next_obs = torch.randint(256, (2, size, *IMAGE), generator=random, dtype=torch.uint8)
    return batch._replace(obs=obs, next_obs=next_obs)


class Given(Noise):
    """Noise that a test knows: these tensors, in the order in which an update requests them."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = list(tensors)

    def normal(self, *shape: int) -> torch.Tensor:
        tensor = self.tensors.pop(0)
        assert tensor.shape == shape
        return tensor

    uniform = normal


class Always:
    """A buffer that always returns the same batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def sample(self, batch_size: int) -> Batch:
        return self.batch


class Silent:
    """A logger that keeps the last value of each key."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def log(self, key: str, value: Any, step: int) -> None:
        self.values[key] = float(value)

    def log_all(self, values: dict[str, Any], step: int) -> None:
        for key, value in values.items():
            self.log(key, value, step)

    def histograms_due(self, step: int) -> bool:
        return False
