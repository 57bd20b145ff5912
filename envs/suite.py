"""Makes tasks of the DeepMind Control Suite. The only file that imports dm_control as it is imported itself."""

import inspect
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from dm_control import suite

import dmc2gym
from envs.adapter import Wrap, adapt, wrap
from envs.names import SUITE_TASKS
from envs.observations import Keys, Pixels
from settings.env_ids import EPISODE_LENGTH

VIDEO_SIZE = 256  # pixels
SHADOW_SIZE = 1024  # pixels


def make_suite_env(
    name: str,
    seed: int,
    action_repeat: int,
    render: bool,
    kwargs: Mapping[str, Any],
    wrappers: Sequence[Wrap],
    pixels: Pixels,
    info_keys: Mapping[str, str],
) -> gym.Env:
    """Makes a suite task; for arguments see `envs.make.make_env`."""
    domain, task = SUITE_TASKS[name]
    size, camera = pixels.size if pixels.rendered else VIDEO_SIZE, pixels.camera_of(domain)
    of_task = inspect.signature(getattr(suite, domain).SUITE[task]).parameters
    env = dmc2gym.load(
        domain,
        task,
        seed,
        visualize_reward=render and not pixels.rendered,
        height=size,
        width=size,
        camera_id=camera,
        task_kwargs={key: value for key, value in kwargs.items() if key in of_task},
        environment_kwargs={key: value for key, value in kwargs.items() if key not in of_task},
    )
    if pixels.rendered or render:
        _speed_up_rendering(env, max(size, VIDEO_SIZE), multisample=pixels.rendered)
    limit = None if "time_limit" in kwargs else EPISODE_LENGTH
    keys = () if pixels.groups is None else _list_keys(env)
    env = adapt(wrap(env, wrappers), name, action_repeat, limit, pixels, info_keys, keys)
    return VideoFrames(env, VIDEO_SIZE, camera) if pixels.rendered else env


def _list_keys(env: gym.Env) -> Keys:
    """Returns the keys and widths of dm_control's observation, in the order in which it is flattened."""
    task = env.unwrapped._env  # type: ignore[attr-defined]
    obs = task.task.get_observation(task.physics)
    return [(key, int(np.size(obs[key]))) for key in (obs if isinstance(obs, OrderedDict) else sorted(obs))]


class VideoFrames(gym.Wrapper):
    """Renders frames (size, size, 3) of a task from pixels, whose observations have another size."""

    def __init__(self, env: gym.Env, size: int, camera_id: int):
        super().__init__(env)
        self._kwargs = {"height": size, "width": size, "camera_id": camera_id}

    def render(self) -> Any:
        return self.env.unwrapped._env.physics.render(**self._kwargs)  # type: ignore[attr-defined]


def _speed_up_rendering(env: gym.Env, largest: int, multisample: bool) -> None:
    """Halves the time of rendering on a CPU (docs/PERFORMANCE.md) by buffers of `largest` x `largest` pixels.

    By default frames are drawn into a buffer of 640 x 480 pixels, and shadows into one of 2048 x 2048. With smaller
    buffers no byte of a 64 x 64 frame changes by more than 1. `multisample` makes a pixel the mean of four samples.
    """
    visual = env.unwrapped._env.physics.model.vis  # type: ignore[attr-defined]
    visual.quality.shadowsize = min(visual.quality.shadowsize, SHADOW_SIZE)
    visual.global_.offwidth = visual.global_.offheight = largest
    if not multisample:
        visual.quality.offsamples = 0
