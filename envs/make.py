"""A task's name in, an environment out. Imports dm_control: a run imports it through run.machine.import_envs."""

import os
import traceback
import warnings
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
from dm_control.rl.control import PhysicsError
from gymnasium.envs.registration import EnvSpec

import dmc2gym
from envs.names import SUITE_TASKS, unknown
from envs.pixels import Filmed, Pixels, Rendered, channels_first, is_image, render_quickly, require_camera, stacked
from envs.processes import EnvProcesses, make_train_envs
from envs.seeded import SeededEpisodes
from envs.watched import Watched
from utils import UserError, one_line

__all__ = [
    "SUITE_TASKS",
    "EnvProcesses",
    "PhysicsError",
    "Pixels",
    "SeededEpisodes",
    "make_env",
    "make_train_envs",
    "needs_opengl",
]

EPISODE_LENGTH = 1000  # steps, for environments that set no limit of their own
VIDEO_SIZE = 256  # pixels
NO_PIXELS = Pixels()


def make_env(name: str, seed: int, action_repeat: int = 1, render: bool = False, pixels: Pixels = NO_PIXELS) -> gym.Env:
    """Builds an environment with a flat float32 observation, or images, and float32 actions in [-1, 1].

    Args:
        name: a suite task such as `cheetah_run`, or a Gymnasium id such as `Pendulum-v1`.
        seed: for what is drawn at construction; episodes take theirs in `reset`.
        action_repeat: environment steps that one action is held for; `info["repeats"]` says how many were taken.
        render: whether `render()` will be called, for (H, W, 3) uint8 frames.
        pixels: how observations become images, (C, H, W) uint8; those of an environment that gives images are stacked
            in any case.

    Raises:
        UserError: for an unknown name, a missing optional package, or spaces that SAC cannot use.
    """
    if name in SUITE_TASKS:
        try:
            return _make_suite(name, seed, action_repeat, render, pixels)
        except RuntimeError as error:  # quadruped_escape renders its terrain while it is built
            raise UserError(
                f"env={name}: it cannot be built here ({error}); it may need OpenGL (libosmesa6)"
            ) from error
    return _make_gymnasium(name, action_repeat, render, pixels)


def _make_suite(name: str, seed: int, action_repeat: int, render: bool, pixels: Pixels) -> gym.Env:
    domain, task = SUITE_TASKS[name]
    size, camera = (pixels.size, pixels.camera_of(domain)) if pixels.rendered else (VIDEO_SIZE, 0)
    env = dmc2gym.make(
        domain,
        task,
        seed=seed,
        visualize_reward=render and not pixels.rendered,
        from_pixels=pixels.rendered,
        height=size,
        width=size,
        camera_id=camera,
        frame_skip=action_repeat,
        episode_length=EPISODE_LENGTH,
    )
    if not pixels.rendered:
        return env
    require_camera(env, camera, name)
    render_quickly(env, max(size, VIDEO_SIZE))
    return Filmed(stacked(env, pixels.stack), VIDEO_SIZE, camera)


def _make_gymnasium(name: str, action_repeat: int, render: bool, pixels: Pixels) -> gym.Env:
    # Box2D's bindings say something about types of their own that is of no use to anyone.
    warnings.filterwarnings("ignore", message="builtin type .* has no __module__")
    try:
        # Not every environment knows the argument, so it is passed only where it is needed.
        renders = render or pixels.rendered
        kwargs: dict[str, Any] = {"render_mode": "rgb_array"} if renders else {}
        if renders:  # pygame is to draw into memory, and to look for neither a window nor a loudspeaker
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
            os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
        env = _make(name, kwargs)
    except gym.error.DependencyNotInstalled as error:
        hint = "pip install -r requirements-box2d.txt" if "ox2" in str(error) else one_line(error)
        raise UserError(f"env={name}: a package is missing; {hint}") from error
    except (gym.error.Error, ImportError) as error:
        raise UserError(unknown(name)) from error
    except UserError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__} in {place.filename}:{place.lineno}: {one_line(error)}"
        hint = "; gym.register(..., kwargs={...}) gives arguments" if "required" in str(error) else ""
        raise UserError(f"env={name}: it cannot be built ({said}){hint}") from error
    try:
        if not isinstance(env.action_space, gym.spaces.Box):
            raise UserError(
                f"env={name}: its actions are {env.action_space}, and SAC here needs a Box; choose a continuous task"
            )
        space = env.observation_space
        as_images = is_image(space) or pixels.rendered
        if isinstance(space, gym.spaces.Dict) and any(map(is_image, space.values())) and not as_images:
            raise UserError(
                f"env={name}: its observations are images beside vectors ({', '.join(space)}); a wrapper of your own "
                "that gives one of them can be learned from"
            )
        if not as_images and not space.is_np_flattenable:
            raise UserError(f"env={name}: its observations, {space}, cannot be flattened into a vector")
        if env.spec is None or env.spec.max_episode_steps is None:
            env = gym.wrappers.TimeLimit(env, EPISODE_LENGTH)
        env = dmc2gym.ActionRepeat(env, action_repeat)
        if as_images:
            env = channels_first(env, name) if is_image(space) else Rendered(env, pixels.size)
            return Watched(dmc2gym.rescale_actions(stacked(env, pixels.stack)), name)
        flat = gym.spaces.flatten_space(space)
        box = gym.spaces.Box(-np.inf, np.inf, flat.shape, np.float32)
        env = gym.wrappers.TransformObservation(
            env, lambda obs: np.asarray(gym.spaces.flatten(space, obs), np.float32), box
        )
        return Watched(dmc2gym.rescale_actions(env), name)
    except ValueError as error:
        raise UserError(f"env={name}: {one_line(error)}") from error


def _make(name: str, kwargs: dict[str, Any]) -> gym.Env:
    try:
        return gym.make(name, disable_env_checker=True, **kwargs)
    except TypeError as error:
        if kwargs and "render_mode" in str(error):  # it will not render, which is said when it is asked to
            return gym.make(name, disable_env_checker=True)
        raise


def reward_threshold(name: str) -> float | None:
    """The mean return at which Gymnasium counts a task as solved; None for the suite's, and where there is none."""
    if name in SUITE_TASKS:
        return None
    threshold = _spec(name).reward_threshold
    return None if threshold is None else float(threshold)


def gymnasium_ids() -> list[str]:
    """What is registered with Gymnasium, the newest version of each alone."""
    newest = {spec.name: spec.id for spec in sorted(gym.registry.values(), key=lambda spec: spec.version or 0)}
    return sorted(name for name in newest.values() if "/" not in name)


def needs_opengl(name: str) -> bool:
    """Whether rendering this environment takes OpenGL; Gymnasium's 2D tasks draw without."""
    return name in SUITE_TASKS or any(word in str(_spec(name).entry_point) for word in ("mujoco", "dm_control"))


def _spec(name: str) -> EnvSpec:
    """What Gymnasium knows of an id; one of a package (my_package:MyEnv-v0) is registered when that is imported."""
    module, _, env_id = name.rpartition(":")
    if module:
        import_module(module)
    return gym.spec(env_id)
