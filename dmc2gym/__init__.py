"""The DeepMind Control Suite as Gymnasium environments: `dmc2gym.make("cheetah", "run", seed=1)`."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
from absl import logging as absl_logging
from dm_control import suite
from gymnasium.wrappers import TimeLimit, TransformObservation
from shimmy.dm_control_compatibility import DmControlCompatibilityV0

from dmc2gym.wrappers import ActionRepeat, rescale_actions

__all__ = ["ActionRepeat", "make", "rescale_actions"]

absl_logging.set_verbosity(absl_logging.ERROR)  # MuJoCo's notes on deprecated XML in the suite's own models


class _SuiteInfo(gym.Wrapper):
    """Adds what pytorch_sac's users read from `info`: the physics state and the discount."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self._physics = env.unwrapped._env.physics  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        obs, _ = self.env.reset(seed=seed, options=options)
        return obs, {"internal_state": self._physics.get_state(), "discount": 1.0}

    def step(self, action: np.ndarray) -> tuple[Any, Any, bool, bool, dict]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        info = {"internal_state": self._physics.get_state(), "discount": info["timestep.discount"]}
        return obs, float(reward), terminated, truncated, info


def make(
    domain_name: str,
    task_name: str,
    seed: int | None = None,
    visualize_reward: bool = True,
    from_pixels: bool = False,
    height: int = 84,
    width: int = 84,
    camera_id: int = 0,
    frame_skip: int = 1,
    episode_length: int = 1000,
    environment_kwargs: dict[str, Any] | None = None,
    time_limit: float | None = None,
    channels_first: bool = True,
) -> gym.Env:
    """Builds one suite task.

    Args:
        domain_name: the suite's domain, such as "cheetah".
        task_name: the domain's task, such as "run".
        seed: seeds the task's construction (the `lqr` tasks draw their model there) and its episodes
            until `reset(seed=...)` does.
        visualize_reward: colours the rendering by reward.
        from_pixels: observations are rendered images instead of state vectors.
        height, width: of rendered frames, in pixels.
        camera_id: the camera that renders.
        frame_skip: control steps one action is held for; their rewards are summed.
        episode_length: control steps after which an episode is truncated.
        environment_kwargs: passed on to `suite.load`.
        time_limit: the task's own limit, in simulated seconds; reaching it truncates and never terminates.
            Defaults to the task's; the `lqr` tasks, which have none, get `episode_length` control steps.
        channels_first: pixel observations are (3, H, W); otherwise (H, W, 3).

    Returns:
        An environment with float32 observations (obs_dim,), in dm_control's own order, or uint8 images, and
        float32 actions in [-1, 1] of shape (action_dim,), mapped onto the task's bounds. `info` holds
        `internal_state` and `discount`, and `repeats`, the control steps that the action was held for.

    Raises:
        ValueError: for an unknown task, or `visualize_reward` together with `from_pixels`.
    """
    if visualize_reward and from_pixels:
        raise ValueError("visualize_reward=True colours what from_pixels=True would learn from; pass one of them")
    task_kwargs: dict[str, Any] = {"random": seed}
    if time_limit is not None:
        task_kwargs["time_limit"] = time_limit
    task = suite.load(
        domain_name,
        task_name,
        task_kwargs=task_kwargs,
        environment_kwargs={**(environment_kwargs or {}), "flat_observation": True},
        visualize_reward=visualize_reward,
    )
    env: gym.Env = DmControlCompatibilityV0(
        task,
        render_mode="rgb_array",
        render_kwargs={"height": height, "width": width, "camera_id": camera_id},
    )
    env = ActionRepeat(_SuiteInfo(env), frame_skip)
    if from_pixels:
        rendered, shape = env, (3, height, width) if channels_first else (height, width, 3)

        def frame(_: Any) -> np.ndarray:
            picture: Any = rendered.render()
            return np.ascontiguousarray(picture.transpose(2, 0, 1)) if channels_first else picture

        env = TransformObservation(env, frame, gym.spaces.Box(0, 255, shape, np.uint8))
    else:
        space = gym.spaces.Box(-np.inf, np.inf, task.observation_spec()["observations"].shape, np.float32)
        env = TransformObservation(env, lambda obs: obs["observations"].astype(np.float32), space)
    return TimeLimit(rescale_actions(env), max_episode_steps=math.ceil(episode_length / frame_skip))
