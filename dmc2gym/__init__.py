"""The DeepMind Control Suite as Gymnasium environments: `dmc2gym.make("cheetah", "run", seed=1)`."""

import contextlib
import io
from typing import Any

import gymnasium as gym
import numpy as np
from absl import logging as absl_logging
from gymnasium.wrappers import TimeLimit, TransformObservation

from dmc2gym.wrappers import STATE, UNBOUNDED, ActionRepeat, RescaledActions

__all__ = ["UNBOUNDED", "ActionRepeat", "RescaledActions", "load", "make"]

_FLAT = "observations"  # dm_control's key of the flat observation

absl_logging.set_verbosity(absl_logging.ERROR)  # silences warnings about deprecated XML in the suite's models


class _SuiteTask(gym.Wrapper):
    """Returns the observation as one float32 vector, and `info` as pytorch_sac does: the physics state before the
    action, and the discount."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        task = env.unwrapped._env  # type: ignore[attr-defined]
        self._physics = task.physics
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, task.observation_spec()[_FLAT].shape, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = self.env.reset(seed=seed, options=options)
        return obs[_FLAT].astype(np.float32), {STATE: self._physics.get_state(), "discount": 1.0}

    def step(self, action: np.ndarray) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        state = self._physics.get_state()  # a copy
        obs, reward, terminated, truncated, info = self.env.step(action)
        info = {STATE: state, "discount": info["timestep.discount"]}
        return obs[_FLAT].astype(np.float32), float(reward), terminated, truncated, info


def load(
    domain_name: str,
    task_name: str,
    seed: int | None = None,
    visualize_reward: bool = True,
    height: int = 84,
    width: int = 84,
    camera_id: int = 0,
    environment_kwargs: dict[str, Any] | None = None,
    task_kwargs: dict[str, Any] | None = None,
) -> gym.Env:
    """Builds one suite task with its own action bounds and time limit, and float32 observations (obs_dim,) in
    dm_control's order. The arguments are those of `make`."""
    from dm_control import suite  # imported late: it reads MUJOCO_GL, and takes a second

    with contextlib.redirect_stdout(io.StringIO()):  # without labmaze, shimmy prints which other tasks are missing
        from shimmy.dm_control_compatibility import DmControlCompatibilityV0

    task = suite.load(
        domain_name,
        task_name,
        task_kwargs={**(task_kwargs or {}), "random": seed},
        environment_kwargs={**(environment_kwargs or {}), "flat_observation": True},
        visualize_reward=visualize_reward,
    )
    size = {"height": height, "width": width, "camera_id": camera_id}
    return _SuiteTask(DmControlCompatibilityV0(task, render_mode="rgb_array", render_kwargs=size))


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
    episode_length: int | None = 1000,
    environment_kwargs: dict[str, Any] | None = None,
    time_limit: float | None = None,
    channels_first: bool = True,
    task_kwargs: dict[str, Any] | None = None,
) -> gym.Env:
    """Builds one suite task, such as "cheetah", "run".

    Args:
        seed: seeds the construction of the task (`lqr` tasks draw their model then), and its episodes until
            `reset(seed=...)` seeds them.
        visualize_reward: colour the rendering by reward.
        from_pixels: observations are rendered images instead of state vectors.
        height, width, camera_id: size of rendered frames, in pixels, and the camera that renders them.
        frame_skip: control steps for which each action is held; their rewards are summed.
        episode_length: control steps after which an episode is truncated; None leaves it to the task.
        time_limit: the task's own limit, in simulated seconds; reaching it truncates and never terminates.
            Defaults to the task's; the `lqr` tasks, which have none, get `episode_length` control steps.
        channels_first: pixel observations are (3, H, W); otherwise (H, W, 3).

    Returns:
        An environment with float32 observations (obs_dim,), in dm_control's own order, or uint8 images, and
        float32 actions in [-1, 1] of shape (action_dim,), mapped onto the task's bounds. `info` holds
        `internal_state`, the physics state before the action (after a reset, the first one), `discount`, and
        `repeats`, the control steps that the action was held for.
    """
    if visualize_reward and from_pixels:
        raise ValueError("visualize_reward=True colours what from_pixels=True would learn from; pass one of them")
    task_kwargs = {**(task_kwargs or {}), **({} if time_limit is None else {"time_limit": time_limit})}
    env = load(
        domain_name, task_name, seed, visualize_reward, height, width, camera_id, environment_kwargs, task_kwargs
    )
    env = ActionRepeat(env if episode_length is None else TimeLimit(env, episode_length), frame_skip)
    if from_pixels:
        state_env, shape = env, (3, height, width) if channels_first else (height, width, 3)

        def render(_: Any) -> np.ndarray:
            frame: Any = state_env.render()
            return np.ascontiguousarray(frame.transpose(2, 0, 1)) if channels_first else frame

        env = TransformObservation(env, render, gym.spaces.Box(0, 255, shape, np.uint8))
    return RescaledActions(env)
